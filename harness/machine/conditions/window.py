"""What a stretch of the worker's time cost: read by the worker itself, just outside its timestamps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import psutil

from harness.machine.conditions import load

if TYPE_CHECKING:
    from harness.machine.conditions.energy import Meter

_LEAST_S = 0.2  # the system counts processor time in steps of 10 ms, Windows of 16 ms


class Window:
    """A `with` block whose cost is counted.

    The parent hears of a repetition only when it is over, and of its start not at all; so these two columns are read
    here. Nothing runs inside the block that would not run without it.

    Args:
        meter: of the device that runs the model.

    Attributes:
        counted: `energy_j` and `cpu_busy_other_pct` of the last block, JSON-serialisable: under "values" column ->
            value, under "missing" column -> why there is none.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        worker = psutil.Process()
        self._ours = [process for process in (worker, worker.parent()) if process]
        self.counted: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        self._load = load.until_now(self._ours)
        self._started = time.perf_counter()
        self._energy = self._meter.read()
        return self

    def __exit__(self, *_: object) -> None:
        energy = self._meter.read()
        seconds = time.perf_counter() - self._started
        busy = load.busy_other_pct(self._load, load.until_now(self._ours)) if seconds >= _LEAST_S else None
        joules, no_energy = self._meter.between(self._energy, energy, seconds)
        found = {
            "energy_j": (joules, no_energy),
            "cpu_busy_other_pct": (busy, f"shorter than {_LEAST_S} s: too short for the system's count of CPU time"),
        }
        self.counted = {
            "values": {column: value for column, (value, _) in found.items() if value is not None},
            "missing": {column: why for column, (value, why) in found.items() if value is None},
        }
