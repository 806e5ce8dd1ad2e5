"""From raw intervals to the numbers of a row. Pure arithmetic; DESIGN's definitions, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.workload import Case

DECODE = ("decode_tok_s", "tpot_s")
ITL = ("itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s")


def metrics(case: Case, ttft_s: float | None, itl_s: Sequence[float]) -> tuple[dict[str, float], dict[str, str]]:
    """The measured columns of one repetition.

    Args:
        case: the work that was done.
        ttft_s: seconds from the prompt to the first token; None without a prompt.
        itl_s: seconds of each interval between output tokens (without a prompt: from before the first step).

    Returns:
        column -> value, and column -> why there is none.
    """
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    if ttft_s is None:
        missing |= dict.fromkeys(("ttft_s", "prefill_tok_s"), "no prompt (-p 0)")
    else:
        values |= {"ttft_s": ttft_s, "prefill_tok_s": case.batch * case.n_prompt / ttft_s}
    if len(itl_s) == 0:
        missing |= dict.fromkeys((*DECODE, *ITL), no_interval(case.n_gen))
    else:
        tpot_s = float(np.sum(itl_s)) / len(itl_s)
        values |= {"tpot_s": tpot_s, "decode_tok_s": case.batch / tpot_s}
        values |= itl_quantiles(itl_s)
    return values, missing


def itl_quantiles(itl_s: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """The columns `ITL` of intervals in seconds."""
    return dict(zip(ITL, map(float, np.quantile(itl_s, [0.5, 0.9, 0.99, 1.0])), strict=True))


def no_interval(n_gen: int) -> str:
    """Why so few tokens have no interval: none, or one."""
    return "one token has no interval (-n 1)" if n_gen else "prefill only (-n 0)"
