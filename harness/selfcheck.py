"""Is what is timed also what was verified? The probe scores prompts; here an engine's answers are held against them.

A decode step has kernels of its own (one token, a compiled graph, a static cache), and so has a forward pass without a
KV cache; a cache that was cut back may hold something else than it should. If one of them went wrong, its rate would
be the rate of other work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from backends.base import BackendError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Logits, Session
    from harness.workload import Case

_ANSWERS = 16
# In standard deviations of a position's logits. Rounding moves a logit by some hundredths of one; a wrong answer is
# usually off by several.
_TOLERANCE = 0.5
_NAMES = {"on": "decode", "off": "decode without a KV cache", "prefix": "use of a cached prefix"}


def expected_logits(session: Session, case: Case, tokens: NDArray[np.int32]) -> Logits:
    """What the engine says after the same tokens read as a prompt, for the first answers that are to be checked.

    Args:
        session: allocated for the case, with a KV cache, in whatever state.
        case: what is repeated.
        tokens: `[batch, case.context_tokens]`, the stream.

    Returns:
        `[batch, answers, vocab]`; no answers where there is nothing to check.
    """
    first, count = _checked(case)
    if not count:
        return np.zeros((case.batch, 0, session.vocab_size), dtype=np.float32)
    # A cache that was reused is itself to be judged, so nothing of it may be left.
    kept = session.reset(first if case.kv_cache == "on" else 0)
    if kept < first:
        session.prefill(tokens[:, kept:first])
    return session.logits(tokens[:, first : first + count])


def check_answers(case: Case, ids: NDArray[np.int32], expected: Logits) -> None:
    """Compare the first answers of a repetition with the prompt's.

    Each answer must be the prompt's best token there, or as good as that but for rounding.

    Args:
        case: what was repeated.
        ids: `[batch, tokens]`, the repetition's answers.
        expected: of `expected_logits`.

    Raises:
        BackendError: the engine computes something else than its own prefill.
    """
    _, count = _checked(case)
    if not count:
        return
    skipped = case.n_outputs - case.n_steps if case.kv_cache == "on" else 0
    answers = ids[:, skipped : skipped + count]
    chosen = np.take_along_axis(expected, answers[:, :, None].astype(np.int64), axis=2)[:, :, 0]
    shortfall = (expected.max(axis=2) - chosen) / expected.std(axis=2)
    if (worst := float(shortfall.max())) > _TOLERANCE:
        sequence, step = np.unravel_index(int(shortfall.argmax()), shortfall.shape)
        raise BackendError(
            f"the engine's {_NAMES[case.kv_cache]} contradicts its own prefill: step {step + 1} of sequence "
            f"{sequence + 1} answered a token {worst:.1f} standard deviations below the best, so nothing was timed; "
            "please report this"
        )


def _checked(case: Case) -> tuple[int, int]:
    """The position in the stream whose answer is checked first, and how many are checked.

    A prefill that is no more than that is not checked against itself.
    """
    if case.kv_cache == "on":
        return case.decode_start, min(case.n_steps, _ANSWERS)
    return max(case.decode_start - 1, 0), min(case.n_outputs, _ANSWERS)
