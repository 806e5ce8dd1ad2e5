"""Where the time went, in words; nothing is said that the measurements cannot carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.roofline.breakdown import fit_depths, split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from harness.roofline.breakdown import Interval, Line


def sentences(
    kv_bytes: ArrayLike, tpot_s: ArrayLike, *, streamed_bytes: float, bandwidth_bytes_s: float | None = None
) -> list[str]:
    """Say where the time of one model's decode steps went.

    Args:
        kv_bytes: `[n]`, of the KV cache that a step reads, all sequences, the mean over the timed steps.
        tpot_s: `[n]`, one a launch.
        streamed_bytes: of the weights that a step reads.
        bandwidth_bytes_s: measured, at this working-set size; None: not measured.

    Returns:
        Whole sentences, in the order in which they should be read.

    Raises:
        ValueError: as `fit_depths` and `split`.
    """
    kv, times = np.asarray(kv_bytes, np.float64), np.asarray(tpot_s, np.float64)
    shallowest = kv == kv.min()
    first = _step(float(np.median(times[shallowest])), streamed_bytes, float(kv.min()), bandwidth_bytes_s)
    if shallowest.all():
        return [first]
    line = fit_depths(kv, times)
    if not line.has_slope:
        return [first, _no_slope(line)]
    parts = [first, _kv_bandwidth(line, bandwidth_bytes_s), _intercept(line, streamed_bytes, bandwidth_bytes_s)]
    return [part for part in parts if part]


def size_sentence(line: Line) -> str:
    """Say what `fit_sizes` found."""
    if not line.has_slope:
        return f"{line.n_places} model sizes do not tell at what speed weights are read: their times scatter too much."
    return (
        f"From {line.n_places} model sizes: weights are read at {_bandwidth(line)}, and "
        f"{_overhead(line.intercept, line.intercept_interval)} a token, if it is the same for every size."
    )


def _step(tpot_s: float, streamed_bytes: float, kv_bytes: float, bandwidth_bytes_s: float | None) -> str:
    """One depth, against the measured bandwidth."""
    if bandwidth_bytes_s is None:
        rate = (streamed_bytes + kv_bytes) / tpot_s
        return (
            f"{_milliseconds(tpot_s)} a token, in which {_size(streamed_bytes + kv_bytes)} are read: "
            f"{_gigabytes_a_second(rate)} if nothing else takes time. The memory's own speed was not measured."
        )
    found = split(tpot_s, streamed_bytes, kv_bytes, bandwidth_bytes_s)
    speed = f"this memory's measured speed ({_gigabytes_a_second(bandwidth_bytes_s)})"
    if found.rest_s < 0:
        return (
            f"{_milliseconds(tpot_s)} a token, though reading {_size(streamed_bytes + kv_bytes)} at {speed} "
            f"takes {_milliseconds(found.weights_s + found.kv_s)}: the engine reads faster than the bandwidth test "
            "did, or reads less than is counted here, so the time cannot be taken apart."
        )
    return (
        f"{_milliseconds(tpot_s)} a token: {_milliseconds(found.weights_s)} is reading weights at {speed}, "
        f"{_milliseconds(found.kv_s)} is reading the KV cache at that speed, {_milliseconds(found.rest_s)} is neither "
        "(reading more slowly than assumed, and overhead)."
    )


def _no_slope(line: Line) -> str:
    reason = "a deeper context is not slower" if line.slope <= 0 else "its 95 % interval includes zero"
    text = f"No slope can be told from these {line.n_places} depths: {reason}."
    if line.slope_interval is not None and line.slope_interval[1] > 0:
        text += f" The KV cache is read at {_gigabytes_a_second(1 / line.slope_interval[1])} or faster."
    return text


def _kv_bandwidth(line: Line, bandwidth_bytes_s: float | None) -> str:
    text = f"From {line.n_places} depths: the KV cache is read at {_bandwidth(line)}"
    slowest = 1 / (line.slope if line.slope_interval is None else line.slope_interval[1])
    if bandwidth_bytes_s is not None and slowest > bandwidth_bytes_s:
        text += (
            f", more than the {_gigabytes_a_second(bandwidth_bytes_s)} measured: it is partly read from a cache, or "
            "the bandwidth test falls short"
        )
    return f"{text}."


def _intercept(line: Line, streamed_bytes: float, bandwidth_bytes_s: float | None) -> str:
    """Weights and overhead, which depths alone cannot tell apart."""
    if line.intercept <= 0:
        return "The line through these depths leaves no time for the weights, so it cannot hold at every depth."
    together = f"Without any context a token takes {_milliseconds(line.intercept)}"
    if line.intercept_interval is not None:
        together += f" ({_milliseconds_range(line.intercept_interval)})"
    if bandwidth_bytes_s is None:
        return f"{together}: weights and overhead together, which depths cannot tell apart."
    found = split(line.intercept, streamed_bytes, 0, bandwidth_bytes_s)
    assumed = f"if the weights are read at the measured {_gigabytes_a_second(bandwidth_bytes_s)}"
    if found.rest_s < 0:
        return f"{together}, less than the {_milliseconds(found.weights_s)} of the weights {assumed}: they are not."
    interval = line.intercept_interval and (
        line.intercept_interval[0] - found.weights_s,
        line.intercept_interval[1] - found.weights_s,
    )
    return f"{together}: {_milliseconds(found.weights_s)} weights, {_overhead(found.rest_s, interval)}, {assumed}."


def _overhead(seconds: float, interval: Interval | None) -> str:
    if interval is None:
        return f"{_milliseconds(seconds)} overhead"
    if interval[0] <= 0:
        return f"an overhead that cannot be told from none (at most {_milliseconds(interval[1])})"
    return f"{_milliseconds(seconds)} overhead ({_milliseconds_range(interval)})"


def _bandwidth(line: Line) -> str:
    """The inverse of a slope, with its interval."""
    found = _gigabytes_a_second(1 / line.slope)
    if line.slope_interval is None:
        return f"{found} (two places give no interval)"
    low, high = line.slope_interval
    return f"{found} (95 %: {_three(1 / high / 1e9)} to {_three(1 / low / 1e9)})"


def _milliseconds(seconds: float) -> str:
    return f"{_three(1e3 * seconds)} ms"


def _milliseconds_range(interval: Interval) -> str:
    return f"95 %: {_three(1e3 * interval[0])} to {_three(1e3 * interval[1])}"


def _gigabytes_a_second(bytes_s: float) -> str:
    return f"{_three(bytes_s / 1e9)} GB/s"


def _size(n_bytes: float) -> str:
    return f"{_three(n_bytes / 1e9)} GB"


def _three(value: float) -> str:
    """Three digits: no measurement here carries more."""
    return f"{float(f'{value:.3g}'):g}"
