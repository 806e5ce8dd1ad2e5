"""Is what is timed also what was verified? The probe scores prompts; here an engine's decode is held against them.

A decode step has kernels of its own (one token, a compiled graph, a static cache). If it went wrong, its rate would be
the rate of other work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from backends.base import BackendError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Session
    from harness.workload import Case

_STEPS = 16
# In standard deviations of a position's logits. Rounding moves a logit by some hundredths of one; a wrong answer is
# usually off by several.
_TOLERANCE = 0.5


def check_decode(session: Session, case: Case, tokens: NDArray[np.int32], ids: NDArray[np.int32]) -> None:
    """Compare the first decode steps of a repetition with the logits of the same tokens read as a prompt.

    Each step's answer must be the prompt's best token there, or as good as that but for rounding.

    Args:
        session: as the repetition left it.
        case: what was repeated.
        tokens: `[batch, case.context_tokens]`, the stream.
        ids: `[batch, tokens]`, the repetition's answers.

    Raises:
        BackendError: the engine's decode computes something else than its prefill.
    """
    steps = min(case.n_steps, _STEPS)
    if not steps:
        return
    start = case.decode_start
    kept = session.reset(start)
    if kept < start:
        session.prefill(tokens[:, kept:start])
    logits = session.logits(tokens[:, start : start + steps])
    answers = ids[:, ids.shape[1] - case.n_steps :][:, :steps]
    chosen = np.take_along_axis(logits, answers[:, :, None].astype(np.int64), axis=2)[:, :, 0]
    shortfall = (logits.max(axis=2) - chosen) / logits.std(axis=2)
    if (worst := float(shortfall.max())) > _TOLERANCE:
        sequence, step = np.unravel_index(int(shortfall.argmax()), shortfall.shape)
        raise BackendError(
            f"the engine's decode contradicts its own prefill: step {step + 1} of sequence {sequence + 1} answered a "
            f"token {worst:.1f} standard deviations below the best, so nothing was timed; please report this"
        )
