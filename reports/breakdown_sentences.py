"""Where the time went, in sentences; nothing is said that the measurements cannot carry."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from harness.roofline.breakdown import fit_depths, split
from results.amounts import size

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from harness.roofline.breakdown import Interval, Line
    from reports.words import Words


def sentences(
    kv_bytes: ArrayLike,
    tpot_s: ArrayLike,
    words: Words,
    *,
    streamed_bytes: float,
    bandwidth_bytes_s: float | None = None,
) -> list[str]:
    """Say where the time of one model's decode steps went.

    Args:
        kv_bytes: `[n]`, of the KV cache that a step reads, all sequences, the mean over the timed steps.
        tpot_s: `[n]`, one a launch.
        words: of the language to speak.
        streamed_bytes: of the weights that a step reads.
        bandwidth_bytes_s: measured, at this working-set size; None: not measured.

    Returns:
        Whole sentences, in the order in which they should be read.

    Raises:
        ValueError: as `fit_depths` and `split`.
    """
    kv, times = np.asarray(kv_bytes, np.float64), np.asarray(tpot_s, np.float64)
    shallowest = kv == kv.min()
    first = _step(float(np.median(times[shallowest])), streamed_bytes, float(kv.min()), bandwidth_bytes_s, words)
    if shallowest.all():
        return [first]
    line = fit_depths(kv, times)
    if not line.has_slope:
        return [first, *_no_slope(line, bandwidth_bytes_s, words)]
    return [
        first,
        _kv_bandwidth(line, bandwidth_bytes_s, words),
        _intercept(line, streamed_bytes, bandwidth_bytes_s, words),
    ]


def size_sentence(line: Line, words: Words) -> str:
    """Say what `fit_sizes` found."""
    if not line.has_slope:
        return words["breakdown.sizes_scatter"].format(n=line.n_places)
    overhead = _overhead(line.intercept, line.intercept_interval, words)
    return words["breakdown.sizes"].format(n=line.n_places, rate=_rate(line, words), overhead=overhead)


def _step(tpot_s: float, streamed_bytes: float, kv_bytes: float, bandwidth_bytes_s: float | None, words: Words) -> str:
    """One depth, against the measured bandwidth."""
    n_bytes = streamed_bytes + kv_bytes
    if bandwidth_bytes_s is None:
        return words["breakdown.step_unmeasured"].format(
            tpot=_ms(tpot_s), size=size(n_bytes), rate=_gb(n_bytes / tpot_s)
        )
    found = split(tpot_s, streamed_bytes, kv_bytes, bandwidth_bytes_s)
    if found.rest_s < 0:
        return words["breakdown.step_too_fast"].format(
            tpot=_ms(tpot_s),
            size=size(n_bytes),
            bandwidth=_gb(bandwidth_bytes_s),
            read=_ms(found.weights_s + found.kv_s),
        )
    return words["breakdown.step"].format(
        tpot=_ms(tpot_s),
        weights=_ms(found.weights_s),
        bandwidth=_gb(bandwidth_bytes_s),
        kv=_ms(found.kv_s),
        rest=_ms(found.rest_s),
    )


def _no_slope(line: Line, bandwidth_bytes_s: float | None, words: Words) -> list[str]:
    reason = words["breakdown.not_slower"] if line.slope <= 0 else words["breakdown.includes_zero"]
    told = [words["breakdown.no_slope"].format(n=line.n_places, reason=reason)]
    if line.slope_interval is None or line.slope_interval[1] <= 0:
        return told
    # Far below the memory's speed it is true and says nothing.
    slowest = 1 / line.slope_interval[1]
    if bandwidth_bytes_s is None or slowest > bandwidth_bytes_s / 10:
        told.append(words["breakdown.kv_at_least"].format(rate=_gb(slowest)))
    return told


def _kv_bandwidth(line: Line, bandwidth_bytes_s: float | None, words: Words) -> str:
    rate = _rate(line, words)
    slowest = 1 / (line.slope if line.slope_interval is None else line.slope_interval[1])
    if bandwidth_bytes_s is not None and slowest > bandwidth_bytes_s:
        text = words["breakdown.kv_too_fast"]
        return text.format(n=line.n_places, rate=rate, bandwidth=_gb(bandwidth_bytes_s))
    return words["breakdown.kv"].format(n=line.n_places, rate=rate)


def _intercept(line: Line, streamed_bytes: float, bandwidth_bytes_s: float | None, words: Words) -> str:
    """Weights and overhead, which depths alone cannot tell apart."""
    if line.intercept <= 0:
        return words["breakdown.intercept_negative"]
    time = _time(line.intercept, line.intercept_interval, words)
    if bandwidth_bytes_s is None:
        return words["breakdown.intercept_unmeasured"].format(time=time)
    found = split(line.intercept, streamed_bytes, 0, bandwidth_bytes_s)
    told = {"time": time, "weights": _ms(found.weights_s), "bandwidth": _gb(bandwidth_bytes_s)}
    if found.rest_s < 0:
        return words["breakdown.intercept_too_fast"].format(**told)
    interval = line.intercept_interval and (
        line.intercept_interval[0] - found.weights_s,
        line.intercept_interval[1] - found.weights_s,
    )
    return words["breakdown.intercept"].format(**told, overhead=_overhead(found.rest_s, interval, words))


def _time(seconds: float, interval: Interval | None, words: Words) -> str:
    if interval is None:
        return words["breakdown.time"].format(time=_ms(seconds))
    low, high = map(_ms, interval)
    return words["breakdown.time_between"].format(time=_ms(seconds), low=low, high=high)


def _overhead(seconds: float, interval: Interval | None, words: Words) -> str:
    if interval is None:
        return words["breakdown.overhead"].format(time=_ms(seconds))
    low, high = map(_ms, interval)
    if interval[0] <= 0:
        return words["breakdown.overhead_or_none"].format(most=high)
    return words["breakdown.overhead_between"].format(time=_ms(seconds), low=low, high=high)


def _rate(line: Line, words: Words) -> str:
    """The inverse of a slope, with its interval."""
    rate = _gb(1 / line.slope)
    if line.slope_interval is None:
        return words["breakdown.rate_of_two"].format(rate=rate)
    steepest, flattest = line.slope_interval[1], line.slope_interval[0]
    return words["breakdown.rate"].format(rate=rate, low=_gb(1 / steepest), high=_gb(1 / flattest))


def _ms(seconds: float) -> str:
    return _three(1e3 * seconds)


def _gb(n_bytes: float) -> str:
    """GB of bytes, GB/s of bytes a second."""
    return _three(n_bytes / 1e9)


def _three(value: float) -> str:
    """Three digits at most: no measurement here carries more."""
    return f"{Decimal(f'{value:.3g}'):f}"
