"""Is one side of a pair faster? An interval for the ratio, and a verdict that many comparisons do not spoil.

Repetitions inside one launch are too alike to count as independent: of 45 pairs among 10 launches of one build of
llama.cpp, intervals from repetitions call 21 different, while none differs by over 2 %. So a launch is one
observation, the logarithm of its median. With three or more on both sides, the interval is Welch's, by Student's t
with Satterthwaite's degrees of freedom. With fewer, the spread between launches is assumed.

What changed on the machine between the two sides, heat or a neighbour's load, is in no interval: measure them in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from results.student_t import half_width, two_sided_p

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ENOUGH_LAUNCHES = 3
# The standard deviation from launch to launch that is assumed at least. The ten launches above spread over 2 %, and ten
# normal observations spread over 3.08 standard deviations on average (Tippett 1925), so theirs was 0.65 %. Estimated
# with 9 degrees of freedom it may have been 1.64 times as much (chi squared, 5 %: 3.33).
LAUNCH_FLOOR = 0.01
TOO_WIDE = 0.10  # an interval that holds a difference of so much does not show that there is none
SIGNIFICANCE = 0.05

VERDICTS = FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "no significant difference", "cannot tell"


def judge(pairs: pd.DataFrame, min_effect: float) -> pd.DataFrame:
    """The ratio of each pair's speeds, its interval, and the verdict.

    Args:
        pairs: one row a pair with `base_` and `new_` before the columns of `results.compare.noise.noise`.
        min_effect: the smallest relative difference worth a verdict, 0.02 for 2 %; below 1.

    Returns:
        The rows' index with `ratio` of new to base, above 1 where new is faster; `ratio_low` and `ratio_high`, its 95 %
        interval; `interval_from`, "launches" or "floor"; `p`, the probability of so large a ratio, or a larger one,
        were the true one within the minimum effect, by Holm's correction for all the pairs; `verdict`, and
        `verdict_why` it is "cannot tell".
    """
    measured = ((pairs["base_launches"] >= ENOUGH_LAUNCHES) & (pairs["new_launches"] >= ENOUGH_LAUNCHES)).to_numpy()
    variance, weight = np.zeros(len(pairs)), np.zeros(len(pairs))
    for side in ("base", "new"):
        one, degrees = _variance(pairs, side, measured)
        variance = variance + one
        weight = weight + one**2 / degrees
    error = np.sqrt(variance)
    degrees = np.divide(variance**2, weight, out=np.full(len(pairs), np.inf), where=weight > 0)
    log_ratio = (pairs["new_log_speed"] - pairs["base_log_speed"]).to_numpy(float)
    half = half_width(degrees) * error

    repeated = (pairs[["base_repetitions", "new_repetitions"]].min(axis=1) > 1).to_numpy()
    beyond = np.abs(log_ratio) - np.where(log_ratio > 0, np.log1p(min_effect), -np.log1p(-min_effect))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(beyond > 0, two_sided_p(np.divide(beyond, error), degrees), 1.0)
    p[repeated] = _holm(p[repeated])
    p[~repeated] = 1.0

    limit = np.log1p(max(TOO_WIDE, min_effect))
    wide = np.abs(log_ratio) + half > limit
    clear = p <= SIGNIFICANCE
    verdict = np.select([clear & (log_ratio > 0), clear, ~repeated | wide], [FASTER, SLOWER, UNKNOWN], default=SAME)
    why = np.select(
        [clear, ~repeated, wide],
        [
            "",
            "a single repetition shows no noise",
            f"a difference of {100 * np.expm1(limit):.0f} % lies in the interval",
        ],
        default="",
    )
    return pairs[[]].assign(
        ratio=np.exp(log_ratio),
        ratio_low=np.exp(log_ratio - half),
        ratio_high=np.exp(log_ratio + half),
        interval_from=np.where(measured, "launches", "floor"),
        p=p,
        verdict=verdict,
        verdict_why=why,
    )


def _variance(pairs: pd.DataFrame, side: str, measured: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """The variance of one side's mean log speed, and its degrees of freedom.

    Where too few launches were measured, one is taken to vary as much as its repetitions do, and `LAUNCH_FLOOR` at
    least: averaging repetitions is no help against what they have in common.
    """
    launches = pairs[f"{side}_launches"].to_numpy(float)
    between, within = (pairs[f"{side}_{sd}"].fillna(0).to_numpy(float) for sd in ("sd_launches", "sd_within"))
    assumed = np.stack([np.full(len(pairs), LAUNCH_FLOOR), within, between])
    degrees = np.stack([np.full(len(pairs), np.inf), pairs[f"{side}_repetitions"] - launches, launches - 1])
    largest = assumed.argmax(axis=0)[None]
    sd = np.where(measured, between, np.take_along_axis(assumed, largest, 0)[0])
    return sd**2 / launches, np.where(measured, launches - 1, np.take_along_axis(degrees, largest, 0)[0])


def _holm(p: Floats) -> Floats:
    """Each p-value as Holm (1979) corrects it for there being so many."""
    order = np.argsort(p)
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    result = np.empty_like(p)
    result[order] = np.minimum(corrected, 1)
    return result
