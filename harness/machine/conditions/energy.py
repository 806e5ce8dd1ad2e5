"""Counters of energy: NVIDIA's of a GPU, RAPL's of a processor package."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.machine import nvml
from harness.machine.conditions import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_POWERCAP = Path("/sys/class/powercap")

# NVML's counter moves about every 100 ms (ml.energy, "Thermally Stable Profiling"), RAPL's every millisecond (Intel's
# Software Developer's Manual, volume 3B): in a stretch shorter than these, a step is more than 10 % or 5 % of it.
_LEAST_NVML_S = 1.0
_LEAST_RAPL_S = 0.02
_MOST_PACKAGE_W = 600  # no processor package takes more; so long a RAPL counter is sure to wrap at most once


@dataclass(frozen=True)
class Counter:
    """One counter that only grows, but for wrapping around."""

    read: Callable[[], int | None]
    joules: float  # of one count
    least_s: float  # a shorter stretch is too coarse
    wraps_at: int | None = None  # the highest count, after which it starts at 0
    most_s: float | None = None  # in a longer stretch it may wrap more than once


@dataclass(frozen=True)
class Meter:
    """All counters of the device that runs the model; where there are none, why."""

    counters: tuple[Counter, ...] = ()
    missing: str | None = None

    def read(self) -> list[int | None]:
        """What they show."""
        return [counter.read() for counter in self.counters]

    def between(
        self, before: Sequence[int | None], after: Sequence[int | None], seconds: float
    ) -> tuple[float | None, str | None]:
        """Energy between two readings.

        Args:
            before: from `read`.
            after: from `read`, later.
            seconds: the time between them.

        Returns:
            joules, or None and why.
        """
        if self.missing:
            return None, self.missing
        joules = 0.0
        for counter, first, last in zip(self.counters, before, after, strict=True):
            if first is None or last is None:
                return None, "the energy counter did not answer"
            if seconds < counter.least_s:
                return None, f"shorter than {counter.least_s:g} s: too short for the energy counter's steps"
            if counter.most_s is not None and seconds > counter.most_s:
                return None, f"longer than {counter.most_s:.0f} s: the energy counter may have wrapped more than once"
            if last < first and counter.wraps_at is None:
                return None, "the energy counter was set back"
            grown = last - first if last >= first else last - first + (counter.wraps_at or 0)
            joules += grown * counter.joules
        return joules, None


@contextmanager
def meter(device: str, device_name: str | None) -> Iterator[Meter]:
    """The energy meter of a device, held open.

    Args:
        device: the engine's own name; "cpu" for the host.
        device_name: the product's name, several joined by ", " as `Facts` has them; None for the host.
    """
    if device == "cpu":
        yield _host()
        return
    with nvml.open_gpus(device_name or "") as gpus:
        yield _nvidia(gpus, device_name or "")


def _nvidia(gpus: list[nvml.OpenGpu], device_name: str) -> Meter:
    if not gpus:
        return Meter(missing=f"no energy counter of {device_name or 'this device'} can be read")
    if len(gpus) > len(device_name.split(", ")):
        return Meter(missing=f"{len(gpus)} GPUs are called {device_name}: which of them worked is not known")
    if any(gpu.energy_mj() is None for gpu in gpus):
        return Meter(missing="NVIDIA's driver counts no energy of this GPU")
    return Meter(tuple(Counter(gpu.energy_mj, 1e-3, _LEAST_NVML_S) for gpu in gpus))


def _host() -> Meter:
    if sys.platform != "linux":
        system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        return Meter(missing=f"{system} has no energy counter that can be read without administrator's rights")
    # Below the packages lie their cores and memory (intel-rapl:0:1), beside them the whole board ("psys").
    packages = [
        zone
        for zone in sorted(_POWERCAP.glob("intel-rapl:*"))
        if re.fullmatch(r"intel-rapl:\d+", zone.name) and files.text(zone / "name").startswith("package")
    ]
    if not packages:
        return Meter(missing="the kernel shows no energy counter (RAPL), as in most virtual machines")
    for zone in packages:
        if files.number(zone / "energy_uj") is None:
            return Meter(missing=f"{zone / 'energy_uj'} cannot be read (on most systems only by root)")
    return Meter(tuple(_rapl(zone) for zone in packages))


def _rapl(zone: Path) -> Counter:
    highest = files.number(zone / "max_energy_range_uj")
    return Counter(
        read=partial(files.number, zone / "energy_uj"),
        joules=1e-6,
        least_s=_LEAST_RAPL_S,
        wraps_at=highest,
        most_s=highest / 1e6 / _MOST_PACKAGE_W if highest else None,
    )
