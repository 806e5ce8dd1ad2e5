"""Where a decode step's time went: reading the weights, reading the KV cache, and the rest.

`TPOT = weights / bandwidth + KV / bandwidth + overhead`. Steps at several depths read different amounts of KV cache, so
they tell that cache's bandwidth and nothing else: weights and overhead are one number, the intercept. It is split by
assuming that the weights are read at the measured bandwidth, or by models of several sizes on one machine.

The regressor is bytes, not tokens: a sliding window's bytes stop growing where its tokens do not.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.roofline.checks import require
from results.student_t import half_width

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Interval = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A least-squares line with 95 % intervals by Student's t; None where two places leave nothing to judge it by."""

    slope: float
    intercept: float
    slope_interval: Interval | None
    intercept_interval: Interval | None
    n_places: int  # distinct values of x

    @property
    def has_slope(self) -> bool:
        """Whether the points tell that y grows with x at all."""
        return self.slope > 0 if self.slope_interval is None else self.slope_interval[0] > 0


@dataclass(frozen=True)
class Split:
    """The time of one step, taken apart under the assumption that all bytes move at the measured bandwidth."""

    tpot_s: float
    weights_s: float
    kv_s: float

    @property
    def rest_s(self) -> float:
        """What reading at that bandwidth does not explain; negative where the step was faster than it."""
        return self.tpot_s - self.weights_s - self.kv_s


def fit_depths(kv_bytes: ArrayLike, tpot_s: ArrayLike) -> Line:
    """Fit TPOT against the KV cache bytes that a step reads.

    The slope is seconds a byte, so its inverse is the KV cache's effective bandwidth; the intercept is the time of
    weights and overhead together.

    Args:
        kv_bytes: `[n]`, of all sequences, the mean over the timed steps (`Ceiling.mean_kv_bytes`).
        tpot_s: `[n]`. Repetitions inside one launch are too alike to be points of their own: give a launch's median.

    Raises:
        ValueError: fewer than two depths, or a number that is negative or not finite.
    """
    return _fit("kv_bytes", kv_bytes, tpot_s)


def fit_sizes(streamed_bytes: ArrayLike, time_s: ArrayLike) -> Line:
    """Fit the time of weights and overhead against the weights' bytes, for models of several sizes on one machine.

    The slope's inverse is the bandwidth at which weights are really read; the intercept is the overhead, taken to be
    the same for every size.

    Args:
        streamed_bytes: `[n]`, of the weights that a step reads.
        time_s: `[n]`, the intercepts of `fit_depths`, or TPOTs with hardly any context.

    Raises:
        ValueError: fewer than three sizes, or a number that is negative or not finite.
    """
    line = _fit("streamed_bytes", streamed_bytes, time_s)
    if line.n_places < 3:
        raise ValueError(f"{line.n_places} model sizes are too few to tell weights and overhead apart: 3 are needed")
    return line


def split(tpot_s: float, streamed_bytes: float, kv_bytes: float, bandwidth_bytes_s: float) -> Split:
    """Take one step apart with the measured bandwidth.

    Args:
        tpot_s: of the step; or an intercept of `fit_depths`, with 0 for `kv_bytes`.
        streamed_bytes: of the weights that it reads.
        kv_bytes: of the KV cache that it reads, all sequences.
        bandwidth_bytes_s: measured, at this working-set size.

    Raises:
        ValueError: a number is negative, zero where it must not be, or not finite.
    """
    require("tpot_s", tpot_s, 1e-9, 1e6)
    require("streamed_bytes", streamed_bytes, 0, 1e18)
    require("kv_bytes", kv_bytes, 0, 1e18)
    require("bandwidth_bytes_s", bandwidth_bytes_s, 1e6, 1e17)
    return Split(tpot_s, streamed_bytes / bandwidth_bytes_s, kv_bytes / bandwidth_bytes_s)


@functools.lru_cache
def _t_95(degrees: int) -> float:
    return float(half_width([degrees])[0])


def _fit(name: str, x_values: ArrayLike, y_values: ArrayLike) -> Line:
    x, y = np.asarray(x_values, np.float64), np.asarray(y_values, np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"{name} and times must be two lists of one length, not {x.shape} and {y.shape}")
    for values, what, most in ((x, name, 1e18), (y, "time_s", 1e6)):
        for value in values:
            require(what, float(value), 0, most)
    n_places = len(np.unique(x))
    if n_places < 2:
        raise ValueError(f"a line needs two different {name}: there is {n_places}")
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ y) / spread
    intercept = float(y.mean()) - slope * float(x.mean())
    if n_places == 2:
        return Line(slope, intercept, None, None, n_places)
    residuals = y - intercept - slope * x
    degrees = len(x) - 2
    variance = float(residuals @ residuals) / degrees
    t = _t_95(degrees)
    half_slope = t * (variance / spread) ** 0.5
    half_intercept = t * (variance * (1 / len(x) + float(x.mean()) ** 2 / spread)) ** 0.5
    return Line(
        slope,
        intercept,
        (slope - half_slope, slope + half_slope),
        (intercept - half_intercept, intercept + half_intercept),
        n_places,
    )
