"""Which experts a mixture's decode steps really read, counted in a pass that is not timed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from backends.base import Session
    from harness.workload import Case

STEPS = 64  # the first of a case's
BUDGET_S = 60.0  # of the prefill before them
_PIECE = 256  # tokens that tell how long it would take; the probe has run as many at once, so nothing is new


@dataclass(frozen=True)
class ExpertsHit:
    """Attributes.

    hit: distinct experts that a step reads in a layer, all sequences: the mean over steps and layers; None: unknown.
    missing: why it is.
    """

    hit: float | None
    missing: str | None


def counts(case: Case) -> bool:
    """Whether there are steps to count in, if the model is a mixture."""
    return case.n_steps > 0 and case.kv_cache != "off"


def count(session: Session, case: Case, tokens: NDArray[np.int32], *, is_mixture: bool) -> ExpertsHit:
    """Run a case's tokens to its decode start, and some steps, and count.

    Args:
        session: a loaded model; its KV cache is allocated anew, and must be again.
        case: whose steps are meant.
        tokens: `[batch, case.context_tokens]`, the stream.
        is_mixture: whether the model has experts at all.
    """
    if not is_mixture:
        return ExpertsHit(None, "the model has no experts")
    if not counts(case):
        why = "without a KV cache each step reads the experts of its whole prefix" if case.n_steps else None
        return ExpertsHit(None, why or "no decode step was timed")
    first = case.decode_start
    try:
        if (seconds := _prefill_s(session, tokens[:, :first])) > BUDGET_S:
            return ExpertsHit(None, f"another prefill of {first} tokens would take about {seconds:.0f} s here")
        hit = session.experts_hit(tokens[:, : first + min(case.n_steps, STEPS)], first)
    except Exception as error:  # noqa: BLE001  # the case can be timed all the same
        return ExpertsHit(None, f"counting them failed: {' '.join(str(error).split())}")
    if hit is None:
        return ExpertsHit(None, "this engine does not tell which experts it reads")
    return ExpertsHit(float(hit.mean()), None)


def _prefill_s(session: Session, tokens: NDArray[np.int32]) -> float:
    """About how long a prefill takes; 0 where it is too short to matter."""
    batch, n = tokens.shape
    if n <= 4 * _PIECE:
        return 0.0
    session.allocate(_PIECE, batch)
    started = time.perf_counter()
    session.prefill(tokens[:, :_PIECE])
    piece_s = time.perf_counter() - started
    return float(piece_s * n / _PIECE)
