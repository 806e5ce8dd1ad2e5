"""How busy other processes keep the CPU, by the system's counters of processor time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

# Where a system has them. Others are part of these: a guest's time of user, a Windows interrupt's of system.
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
_IDLE = ("idle", "iowait")


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds of processor time until now, of all cores together."""

    busy_s: float
    idle_s: float
    own_s: float  # of the processes that are ours


def until_now(ours: Sequence[psutil.Process]) -> ProcessorTime:
    """Read the counters.

    Args:
        ours: the processes that are not others; making these objects costs more than asking them.
    """
    times = psutil.cpu_times()
    return ProcessorTime(
        busy_s=sum(getattr(times, name, 0.0) for name in _BUSY),
        idle_s=sum(getattr(times, name, 0.0) for name in _IDLE),
        own_s=sum(map(_own_s, ours)),
    )


def busy_other_pct(before: ProcessorTime, after: ProcessorTime) -> float | None:
    """Processor time of others between two readings, in percent of all cores' time.

    What the kernel does for nobody (interrupts) counts, and in a virtual machine what other guests took (steal).

    Returns:
        0 to 100; None where the counters did not move.
    """
    busy_s = after.busy_s - before.busy_s
    all_s = busy_s + after.idle_s - before.idle_s
    if all_s <= 0:
        return None
    # The counters move in steps, and not all at the same moment: a difference may come out a step below nothing.
    return min(max(100 * (busy_s - (after.own_s - before.own_s)) / all_s, 0.0), 100.0)


def look(seconds: float) -> tuple[float, str | None]:
    """Watch the CPU for so long.

    Returns:
        percent of all cores' time that others took, and the name of the busiest of them where one is to be seen.
    """
    ours = [psutil.Process()]
    before, processes = until_now(ours), _times()
    time.sleep(seconds)
    busy = busy_other_pct(before, until_now(ours)) or 0.0
    grown = {key: spent - processes.get(key, spent) for key, spent in _times().items()}
    busiest = max(grown, key=lambda key: grown[key], default=None)
    return busy, busiest[1] if busiest and grown[busiest] > 0 else None


def _own_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _times() -> dict[tuple[int, str], float]:
    """Processor seconds of every other process that this user may ask about, by its id and name."""
    seen = psutil.process_iter(["pid", "name", "cpu_times"])
    return {
        (process.info["pid"], process.info["name"] or ""): process.info["cpu_times"].user
        + process.info["cpu_times"].system
        for process in seen
        if process.info["cpu_times"] and process.info["pid"] != os.getpid()
    }
