"""Clauses on `reset`: what it keeps is there, and what it forgets is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.conformance.requirements import require, require_close
from backends.conformance.texts import SHORT, decode_all, drawn_tokens

if TYPE_CHECKING:
    from backends.base import Session


def reset_keeps_a_prefix(session: Session, tolerance: float) -> None:
    """After `reset(keep)` the same tokens give the same logits, from as many tokens as it says it kept."""
    tokens = drawn_tokens(session, batch=2, n=20)
    session.allocate(SHORT, batch=2)
    whole = session.logits(tokens)
    kept = session.reset(8)
    require(kept in {0, 8}, f"reset(8) kept {kept} tokens: neither 8 nor 0")
    require_close(session.logits(tokens[:, kept:]), whole[:, kept:], tolerance)


def a_kept_prefix_serves_another_text(session: Session, tolerance: float) -> None:
    """With another token after a kept prefix the logits are those of a fresh start: the old text is gone."""
    tokens = drawn_tokens(session, batch=2, n=20)
    changed = tokens.copy()
    changed[:, 8] = (changed[:, 8] + 1) % session.vocab_size
    session.allocate(SHORT, batch=2)
    fresh = session.logits(changed)
    session.reset()
    session.prefill(tokens[:, :16])
    decode_all(session, tokens[:, 16:])
    kept = session.reset(8)
    require_close(session.logits(changed[:, kept:]), fresh[:, kept:], tolerance)


def reset_keeps_no_more_than_there_is(session: Session, tolerance: float) -> None:
    """Asked to keep more tokens than the cache holds, `reset` says how many there are, and they stay."""
    tokens = drawn_tokens(session, batch=1, n=20)
    session.allocate(SHORT, batch=1)
    whole = session.logits(tokens)
    session.allocate(SHORT, batch=1)
    kept = session.reset(8)
    require(kept == 0, f"reset(8) of an empty cache kept {kept} tokens")
    session.prefill(tokens[:, :5])
    kept = session.reset(8)
    require(kept in {0, 5}, f"reset(8) of 5 tokens kept {kept}: neither 5 nor 0")
    require_close(session.logits(tokens[:, kept:]), whole[:, kept:], tolerance)


def reset_forgets_everything(session: Session, tolerance: float) -> None:
    """`reset()` returns 0, and what follows knows nothing of what was before."""
    tokens = drawn_tokens(session, batch=1, n=20)
    session.allocate(SHORT, batch=1)
    fresh = session.logits(tokens[:, 10:])
    session.reset()
    session.prefill(tokens[:, :10])
    decode_all(session, tokens[:, 10:14])
    kept = session.reset()
    require(kept == 0, f"reset(0) kept {kept} tokens")
    require_close(session.logits(tokens[:, 10:]), fresh, tolerance)
