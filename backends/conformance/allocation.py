"""Clauses on `allocate`: an empty KV cache, as large as asked, in which sequences do not mix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.conformance.requirements import require, require_argmax, require_close, require_refused
from backends.conformance.texts import SHORT, decode_all, drawn_tokens

if TYPE_CHECKING:
    from backends.base import Session


def sequences_of_a_batch_do_not_mix(session: Session, tolerance: float) -> None:
    """Each sequence of a batch gets the answers that it gets alone, in prefill, decode and logits."""
    tokens = drawn_tokens(session, batch=3, n=16)
    session.allocate(SHORT, batch=3)
    prefilled = session.prefill(tokens[:, :8]).copy()
    decoded = decode_all(session, tokens[:, 8:12])
    together = session.logits(tokens[:, 12:])
    for row in range(3):
        session.allocate(SHORT, batch=1)
        alone = session.logits(tokens[row : row + 1])
        require_argmax(prefilled[row : row + 1], alone[:, 7], tolerance)
        for step, ids in enumerate(decoded):
            require_argmax(ids[row : row + 1], alone[:, 8 + step], tolerance)
        require_close(together[row : row + 1], alone[:, 12:], tolerance)


def allocate_starts_empty(session: Session, tolerance: float) -> None:
    """A second `allocate`, of another size and batch, drops what the first one held."""
    tokens = drawn_tokens(session, batch=1, n=10)
    session.allocate(SHORT, batch=1)
    session.reset()
    fresh = session.logits(tokens)
    session.allocate(2 * SHORT, batch=2)
    session.prefill(drawn_tokens(session, batch=2, n=7))
    session.allocate(SHORT, batch=1)
    require_close(session.logits(tokens), fresh, tolerance)


def allocation_holds_what_was_asked(session: Session, _: float) -> None:
    """`kv_allocated_tokens` is at least what was asked, and the cache takes that many."""
    session.allocate(SHORT, batch=1)
    before = session.facts().kv_allocated_tokens
    session.prefill(drawn_tokens(session, batch=1, n=SHORT - 2))
    decode_all(session, drawn_tokens(session, batch=1, n=2))
    after = session.facts().kv_allocated_tokens
    require(min(before, after) >= SHORT, f"asked for {SHORT} tokens, allocated {before}, then {after}")


def overflow_is_an_error(session: Session, _: float) -> None:
    """Tokens past the allocated context raise BackendError in every call, and the session lives on."""
    session.allocate(SHORT, batch=1)
    room = session.facts().kv_allocated_tokens
    too_many = drawn_tokens(session, batch=1, n=room + 1)
    require_refused(lambda: session.prefill(too_many), "prefill")
    session.allocate(SHORT, batch=1)
    require_refused(lambda: session.logits(too_many), "logits")
    session.allocate(SHORT, batch=1)
    session.prefill(too_many[:, :SHORT])
    require_refused(lambda: decode_all(session, too_many[:, SHORT - 1 :]), "decode")
    session.allocate(SHORT, batch=1, kv_cache=False)
    require_refused(lambda: list(session.recompute(too_many, room + 1)), "recompute")
    session.allocate(SHORT, batch=1)
    session.prefill(too_many[:, :SHORT])
