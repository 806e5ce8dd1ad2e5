"""From raw intervals to the numbers of a row. Pure arithmetic; DESIGN's definitions, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.workload import Case


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
        why = "prefill only (-n 0)" if case.n_gen == 0 else "one token has no interval (-n 1)"
        missing |= dict.fromkeys((*_DECODE, *_ITL), why)
    else:
        tpot_s = float(np.sum(itl_s)) / len(itl_s)
        values |= {"tpot_s": tpot_s, "decode_tok_s": case.batch / tpot_s}
        p50, p90, p99, most = np.quantile(itl_s, [0.5, 0.9, 0.99, 1.0])
        values |= dict(zip(_ITL, map(float, (p50, p90, p99, most)), strict=True))
    return values, missing


_DECODE = ("decode_tok_s", "tpot_s")
_ITL = ("itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s")
