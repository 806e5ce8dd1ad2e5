"""The hot path: every timestamp of tokenroof is taken here, with one clock, for every backend."""

from __future__ import annotations

import gc
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Session
    from harness.workload import Case


@dataclass(frozen=True)
class Repetition:
    """Raw samples of one pass over a case.

    Attributes:
        started_at: when it began, UTC, ISO 8601.
        ttft_ns: prompt ids handed over → first output id readable; None without a prompt.
        step_ns: `[steps]`, the interval that ended with each decode step.
        ids: `[batch, tokens]`, the argmax of each output token: the prefill's, where there is one, then the steps'.
    """

    started_at: str
    ttft_ns: int | None
    step_ns: NDArray[np.int64]
    ids: NDArray[np.int32]


def fill(session: Session, case: Case, tokens: NDArray[np.int32]) -> None:
    """Bring the KV cache to the case's depth, untimed, keeping what an earlier repetition left of it."""
    kept = session.reset(case.n_depth)
    if kept < case.n_depth:
        session.prefill(tokens[:, kept : case.n_depth])


def repeat(
    session: Session, case: Case, tokens: NDArray[np.int32], around: AbstractContextManager[object] | None = None
) -> Repetition:
    """Run a case once on a session that holds its depth, and take its timestamps.

    Args:
        session: allocated for the case, filled to its depth.
        case: what to run.
        tokens: `[batch, case.context_tokens]`; the decode steps are forced to read from it.
        around: entered right before the first timestamp, left right after the last.
    """
    prompt = np.ascontiguousarray(tokens[:, case.n_depth : case.decode_start])
    # The last token that comes out is never fed back.
    first = case.decode_start
    forced = np.ascontiguousarray(tokens[:, first : first + case.n_steps])
    stamps = np.zeros(case.n_steps + 1, dtype=np.int64)
    step_ids = np.zeros((case.n_steps, case.batch), dtype=np.int32)
    first_ids: list[NDArray[np.int32]] = []
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    clock = time.perf_counter_ns

    gc.collect()
    gc.disable()  # a collection between two tokens would be counted as the engine's time
    try:
        with around or nullcontext():
            start = clock()
            if case.n_prompt:
                first_ids.append(session.prefill(prompt))
            stamps[0] = clock()
            if case.n_steps:
                for step, ids in enumerate(session.decode(forced)):
                    stamps[step + 1] = clock()
                    step_ids[step] = ids
    finally:
        gc.enable()

    return Repetition(
        started_at=started_at,
        ttft_ns=int(stamps[0] - start) if case.n_prompt else None,
        step_ns=np.diff(stamps),
        ids=np.concatenate([*(ids[:, None] for ids in first_ids), step_ids.T], axis=1).astype(np.int32),
    )
