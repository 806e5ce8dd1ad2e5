"""What was measured of one device: read bandwidth against working set, and matrix rates."""

from __future__ import annotations

import bisect
import math
import statistics
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_STEADY = 0.9  # least median, as a share of the best, that is called stable


@dataclass(frozen=True)
class Rate:
    """One quantity, measured again and again; each sample in bytes or FLOP a second."""

    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples or not all(math.isfinite(each) and each > 0 for each in self.samples):
            raise ValueError(f"a rate needs samples above zero, not {self.samples}")

    @property
    def best(self) -> float:
        """The fastest sample: what a ceiling uses, since whatever disturbs a measurement makes it slower."""
        return max(self.samples)

    @property
    def median(self) -> float:
        """The median sample: what to expect on a machine that is as busy as this one was."""
        return statistics.median(self.samples)

    @property
    def stable(self) -> bool:
        """Whether the usual sample comes near the best."""
        return self.median >= _STEADY * self.best


@dataclass(frozen=True)
class Point:
    """Reading one working set again and again, by several kernels."""

    working_set_bytes: int
    kernels: Mapping[str, Rate]  # bytes a second

    def __post_init__(self) -> None:
        if self.working_set_bytes <= 0 or not self.kernels:
            raise ValueError(f"a point needs a working set and a kernel, not {self}")

    @property
    def kernel(self) -> str:
        """The kernel with the fastest sample."""
        return max(self.kernels, key=lambda name: self.kernels[name].best)

    @property
    def best_bytes_s(self) -> float:
        """That kernel's best sample."""
        return self.kernels[self.kernel].best

    @property
    def median_bytes_s(self) -> float:
        """That kernel's median sample."""
        return self.kernels[self.kernel].median


@dataclass(frozen=True)
class Curve:
    """Read bandwidth of one memory, caches included, as a function of the working set."""

    points: tuple[Point, ...]  # by working set, ascending

    def __post_init__(self) -> None:
        sizes = [point.working_set_bytes for point in self.points]
        if not sizes or any(small >= large for small, large in pairwise(sizes)):
            raise ValueError(f"the working sets of a curve must ascend, not {sizes}")

    @property
    def stable(self) -> bool:
        """Whether every point is."""
        return all(point.kernels[point.kernel].stable for point in self.points)

    def at(self, working_set_bytes: float) -> float:
        """Bytes a second at which this many bytes can be read, if they are read again and again.

        Log-log interpolation between the two nearest points; the first point's value below it, the last one's
        above. A small set is read at least as fast as a larger one: where the measurement says otherwise, a
        kernel's launch or a disturbance took the time, so each point counts as the best of it and all larger ones.
        """
        reached = _never_rising([point.best_bytes_s for point in self.points])
        sizes = [point.working_set_bytes for point in self.points]
        right = bisect.bisect_left(sizes, working_set_bytes)
        if right == len(sizes):
            return reached[-1]
        if right == 0 or sizes[right] == working_set_bytes:
            return reached[right]
        left = right - 1
        share = math.log(working_set_bytes / sizes[left]) / math.log(sizes[right] / sizes[left])
        return float(reached[left] * (reached[right] / reached[left]) ** share)


def _never_rising(rates: list[float]) -> list[float]:
    """Each value, or a larger one that follows it."""
    result: list[float] = []
    for rate in reversed(rates):
        result.append(max(rate, result[-1]) if result else rate)
    return result[::-1]


@dataclass(frozen=True)
class Measured:
    """All that was measured of one device."""

    curve: Curve
    matrix: Mapping[str, Rate]  # weight format -> FLOP a second of matrix products in that format's compute type
    measured_at: str  # UTC, ISO 8601
    unavailable: Mapping[str, str] = field(default_factory=dict)  # weight format -> why it has no matrix rate

    @property
    def stable(self) -> bool:
        """Whether everything that was measured is."""
        return self.curve.stable and all(rate.stable for rate in self.matrix.values())
