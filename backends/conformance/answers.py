"""Clauses on what a session answers: `logits`, `prefill`, `decode` and `recompute` agree with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from backends.conformance.requirements import require, require_argmax, require_array, require_close
from backends.conformance.texts import LONG, SHORT, collected, decode_all, drawn_tokens

if TYPE_CHECKING:
    from backends.base import Session


def logits_are_float32_and_finite(session: Session, _: float) -> None:
    """`logits` returns `[batch, n, vocab]` float32 on the host."""
    tokens = drawn_tokens(session, batch=2, n=5)
    session.allocate(SHORT, batch=2)
    logits = session.logits(tokens)
    require_array(logits, (2, 5, session.vocab_size), np.float32)
    require(bool(np.isfinite(logits).all()), "logits are not finite")


def prefill_returns_the_last_argmax(session: Session, tolerance: float) -> None:
    """`prefill` returns `[batch]` int32, the argmax after the last token; also for a prompt of one token."""
    for n in (1, 9):
        tokens = drawn_tokens(session, batch=2, n=n)
        session.allocate(SHORT, batch=2)
        expected = session.logits(tokens)[:, -1]
        session.reset()
        require_argmax(session.prefill(tokens), expected, tolerance)


def decode_returns_each_argmax(session: Session, tolerance: float) -> None:
    """`decode` yields one `[batch]` int32 a step, the argmax after its forced input."""
    tokens = drawn_tokens(session, batch=2, n=14)
    session.allocate(SHORT, batch=2)
    expected = session.logits(tokens)
    session.reset()
    session.prefill(tokens[:, :6])
    answers = decode_all(session, tokens[:, 6:])
    require(len(answers) == 8, f"8 steps yielded {len(answers)} times")
    for step, ids in enumerate(answers):
        require_argmax(ids, expected[:, 6 + step], tolerance)


def pieces_equal_the_whole(session: Session, tolerance: float) -> None:
    """However a sequence is cut into calls, its logits are the same, also past a cache's growth step."""
    n = min(LONG, session.max_context or LONG)
    tokens = drawn_tokens(session, batch=1, n=n)
    session.allocate(n, batch=1)
    whole = session.logits(tokens)
    session.reset()
    session.prefill(tokens[:, :1])
    session.prefill(tokens[:, 1 : n // 2])
    middle = session.logits(tokens[:, n // 2 : n - 50])
    decode_all(session, tokens[:, n - 50 : n - 5])
    end = session.logits(tokens[:, n - 5 :])
    require_close(middle, whole[:, n // 2 : n - 50], tolerance)
    require_close(end, whole[:, n - 5 :], tolerance)


def decode_continues_where_it_ended(session: Session, tolerance: float) -> None:
    """Two calls of `decode`, the first of a single step, leave the cache as one would."""
    tokens = drawn_tokens(session, batch=1, n=16)
    session.allocate(SHORT, batch=1)
    whole = session.logits(tokens)
    session.reset()
    session.prefill(tokens[:, :4])
    answers = decode_all(session, tokens[:, 4:5]) + decode_all(session, tokens[:, 5:12])
    require(len(answers) == 8, f"1 + 7 steps yielded {len(answers)} times")
    require_argmax(answers[-1], whole[:, 11], tolerance)
    require_close(session.logits(tokens[:, 12:]), whole[:, 12:], tolerance)


def recompute_answers_as_cached_decode(session: Session, tolerance: float) -> None:
    """Without a KV cache each prefix, from any first one, yields `[batch]` int32: the argmax after its last token."""
    tokens = drawn_tokens(session, batch=2, n=14)
    session.allocate(SHORT, batch=2)
    expected = session.logits(tokens)
    session.allocate(SHORT, batch=2, kv_cache=False)
    for first in (6, 1):
        answers = collected(session.recompute(tokens, first), batch=2)
        require(len(answers) == 15 - first, f"prefixes of {first} to 14 tokens yielded {len(answers)} times")
        for length, ids in enumerate(answers, first):
            require_argmax(ids, expected[:, length - 1], tolerance)
