"""The texts that sessions are given, and what decoding one yields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from backends.conformance.requirements import require_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.base import Ids, Session

SHORT = 24
"""Tokens of most texts."""

LONG = 300
"""Long enough to pass a cache's growth or padding step, which is 256 tokens in the engines known here."""


def drawn_tokens(session: Session, *, batch: int, n: int) -> Ids:
    """Ids that differ between sequences and positions, the same at each call: `[batch, n]`."""
    drawn = np.random.default_rng(seed=[batch, n]).integers(session.vocab_size, size=(batch, n))
    return drawn.astype(np.int32)


def decode_all(session: Session, tokens: Ids) -> list[Ids]:
    """Run decode to its end."""
    return collected(session.decode(tokens), batch=len(tokens))


def collected(steps: Iterator[Ids], *, batch: int) -> list[Ids]:
    """What each step yields. Copies, because a backend may reuse the array that it yields."""
    answers = []
    for ids in steps:
        require_array(ids, (batch,), np.int32)
        answers.append(ids.copy())
    return answers
