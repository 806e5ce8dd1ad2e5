"""How much the repetitions of a line vary: between launches, within them, over time, and by single outliers.

All on logarithms, so that everything is relative: a difference of 0.01 is 1 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from results.student_t import half_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.integer[Any]]

# Iglewicz and Hoaglin (1993), How to Detect and Handle Outliers: 0.6745 · |x - median| / MAD above 3.5.
_OUTLIER_MADS = 3.5 / 0.6745
_LEAST_FOR_MAD = 5

COLUMNS = [
    *("launches", "repetitions", "log_speed", "sd_launches", "sd_within"),
    *("trend", "trend_low", "trend_high", "outliers"),
]


def noise(line: Numbers, launch: Numbers, repetition: Floats, log_speed: Floats) -> pd.DataFrame:
    """What the repetitions of each line say of their own spread.

    Args:
        line: `[n]`, numbers from 0 without gaps.
        launch: `[n]`, the same; each launch is of one line.
        repetition: `[n]`, its place within the launch.
        log_speed: `[n]`.

    Returns:
        One row a line, by its number: `launches`, `repetitions`; `log_speed`, the mean of the launches' medians;
        `sd_launches` of those medians (two at least) and `sd_within`, of repetitions in one launch (pooled);
        `trend`, `trend_low`, `trend_high`: the change of log speed from one repetition to the next, a launch's level
        apart, with its 95 % interval; `outliers`, repetitions far from their launch's median. Missing where there
        are too few repetitions to tell.
    """
    line_of_launch = np.zeros(launch.max() + 1, np.intp)
    line_of_launch[launch] = line
    groups = pd.Series(log_speed).groupby(launch)
    medians = groups.median().to_numpy()
    per_line = pd.Series(medians).groupby(line_of_launch)
    repetitions, launches = np.bincount(line), np.bincount(line_of_launch)

    y = log_speed - groups.transform("mean").to_numpy()
    x = repetition - pd.Series(repetition).groupby(launch).transform("mean").to_numpy()
    spread = np.bincount(line, x * x)
    with np.errstate(divide="ignore", invalid="ignore"):  # too few repetitions: 0 / 0 is missing
        sd_within = np.sqrt(np.bincount(line, y * y) / _positive(repetitions - launches))
        slope = np.bincount(line, x * y) / _positive(spread)
        degrees = _positive(repetitions - launches - 1)
        error = np.sqrt(np.bincount(line, (y - slope[line] * x) ** 2) / degrees / _positive(spread))
    half = half_width(np.nan_to_num(degrees, nan=1)) * error
    return pd.DataFrame(
        {
            "launches": launches,
            "repetitions": repetitions,
            "log_speed": per_line.mean(),
            "sd_launches": per_line.std(),
            "sd_within": sd_within,
            "trend": slope,
            "trend_low": slope - half,
            "trend_high": slope + half,
            "outliers": _outliers(line, log_speed - medians[launch]),
        }
    )


def cv_pct(sd_log: Floats) -> Floats:
    """The coefficient of variation, in percent, of what has this standard deviation of its logarithm."""
    cv: Floats = 100 * np.sqrt(np.expm1(sd_log**2))
    return cv


def _outliers(line: Numbers, off: Floats) -> Floats:
    """How many repetitions of each line are outliers by the median absolute deviation from their launch's median.

    The repetition that is its launch's median is at zero by construction, and does not count: with three to a launch
    it would make every third deviation zero.
    """
    size = pd.Series(np.abs(off)).where(off != 0)
    groups = size.groupby(line)
    far = size.to_numpy() > _OUTLIER_MADS * groups.transform("median").to_numpy()
    return np.where(groups.count() >= _LEAST_FOR_MAD, np.bincount(line, far), np.nan)


def _positive(numbers: NDArray[np.intp] | Floats) -> Floats:
    return np.where(numbers > 0, numbers, np.nan)
