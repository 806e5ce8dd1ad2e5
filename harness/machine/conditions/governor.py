"""What decides the CPU's frequency on Linux, and the frequency."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.machine.conditions import files

_POLICIES = Path("/sys/devices/system/cpu/cpufreq")
# With these drivers "powersave" still goes up to the highest frequency under load; how eagerly, a preference says
# (kernel documentation, admin-guide/pm/intel_pstate and amd-pstate, active mode).
_SELF_GOVERNED = ("intel_pstate", "amd-pstate-epp")
_SAVING = ("power", "balance_power")


@dataclass(frozen=True)
class Policy:
    """How the frequency of some cores is chosen."""

    governor: str
    driver: str
    preference: str  # of a processor that governs itself; else empty

    @property
    def saves_power(self) -> bool:
        """Whether it holds the cores below what they could do."""
        if self.driver in _SELF_GOVERNED:
            return self.preference in _SAVING
        return self.governor == "powersave"

    def __str__(self) -> str:
        """`powersave`, or `powersave, balance_power`."""
        return ", ".join(filter(None, (self.governor, self.preference)))


def policies() -> list[Policy]:
    """Every different policy among the cores; none in most virtual machines, and on other systems than Linux."""
    found = {
        Policy(
            governor=files.text(folder / "scaling_governor"),
            driver=files.text(folder / "scaling_driver"),
            preference=files.text(folder / "energy_performance_preference"),
        )
        for folder in _POLICIES.glob("policy*")
    }
    return sorted(found, key=str)


def highest_mhz() -> float | None:
    """The present frequency of the fastest core: the others may idle. None where the system does not tell."""
    with contextlib.suppress(AttributeError, NotImplementedError, OSError, RuntimeError):
        return max((core.current for core in psutil.cpu_freq(percpu=True)), default=0.0) or None
    return None
