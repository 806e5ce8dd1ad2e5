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
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import Ids, Session
    from harness.workload import Case


@dataclass(frozen=True)
class Repetition:
    """Raw samples of one pass over a case.

    Attributes:
        started_at: when it began, UTC, ISO 8601.
        ttft_ns: prompt ids handed over → first output id readable; None without a prompt.
        step_ns: `[steps]`, the interval that ended with each decode step.
        ids: `[batch, tokens]`, the argmax of each output token: the prefill's, where there is one, then the steps'.
        kept_tokens: tokens of an earlier text that the engine kept and did not compute again; None where there was
            none.
    """

    started_at: str
    ttft_ns: int | None
    step_ns: NDArray[np.int64]
    ids: NDArray[np.int32]
    kept_tokens: int | None


def fill(session: Session, case: Case, tokens: NDArray[np.int32]) -> None:
    """Bring the KV cache to where the case begins, untimed, keeping what an earlier repetition left of it."""
    if case.kv_cache == "off":
        return
    text = tokens[:, : case.n_depth]
    if case.kv_cache == "prefix":  # an earlier text, which has nothing but the prefix in common with this one
        other = (tokens[:, case.n_depth : case.decode_start] + 1) % session.vocab_size
        text = np.concatenate([text, other], axis=1)
    kept = session.reset(case.n_depth)
    if kept < text.shape[1]:
        session.prefill(np.ascontiguousarray(text[:, kept:]))


def repeat(
    session: Session, case: Case, tokens: NDArray[np.int32], around: AbstractContextManager[object] | None = None
) -> Repetition:
    """Run a case once on a session that was filled for it, and take its timestamps.

    Args:
        session: allocated for the case, and filled.
        case: what to run.
        tokens: `[batch, case.context_tokens]`; the decode steps are forced to read from it.
        around: entered right before the first timestamp, left right after the last.
    """
    work = _Work(session, case, tokens)
    stamps = np.zeros(case.n_outputs + 1, dtype=np.int64)
    answers = np.zeros((case.n_outputs, case.batch), dtype=np.int32)
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    clock = time.perf_counter_ns

    gc.collect()
    gc.disable()  # a collection between two tokens would be counted as the engine's time
    try:
        with around or nullcontext():
            stamps[0] = clock()
            for output, ids in enumerate(work.outputs()):
                stamps[output + 1] = clock()
                answers[output] = ids
    finally:
        gc.enable()

    intervals = np.diff(stamps)
    return Repetition(
        started_at=started_at,
        ttft_ns=int(intervals[0]) if case.n_prompt else None,
        step_ns=intervals[1:] if case.n_prompt else intervals,
        ids=np.ascontiguousarray(answers.T),
        kept_tokens=work.kept_tokens,
    )


class _Work:
    """The calls that are timed, on arrays that are ready before the clock starts."""

    def __init__(self, session: Session, case: Case, tokens: NDArray[np.int32]) -> None:
        # The last token that comes out is never fed back.
        end = case.decode_start + case.n_steps
        self._session, self._case = session, case
        self._text = np.ascontiguousarray(tokens[:, :end])
        self._prompt = np.ascontiguousarray(tokens[:, case.n_depth : case.decode_start])
        self._forced = np.ascontiguousarray(tokens[:, case.decode_start : end])
        self.kept_tokens: int | None = None

    def outputs(self) -> Iterator[Ids]:
        """Yield `[batch]` ids for each output token, as soon as they are readable."""
        session, case = self._session, self._case
        if case.kv_cache == "off":
            yield from session.recompute(self._text, max(case.n_prompt, 1))
            return
        if case.kv_cache == "prefix":
            self.kept_tokens = session.reset(case.n_depth)
            yield session.prefill(self._text[:, self.kept_tokens : case.decode_start])
        elif case.n_prompt:
            yield session.prefill(self._prompt)
        if case.n_steps:
            yield from session.decode(self._forced)
