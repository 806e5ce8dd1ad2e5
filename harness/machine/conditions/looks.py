"""One look at the device that runs a model: how hot it is, whether it is held back, how fast it may run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from harness.machine import nvml
from harness.machine.conditions import governor, heat
from harness.machine.conditions.power_source import power_source

if TYPE_CHECKING:
    from collections.abc import Iterator

Facts = dict[str, float | str | None]


@dataclass(frozen=True)
class Look:
    """What was seen at one moment.

    Attributes:
        temp_c: the device's temperature; None: not told.
        held_back: why the device is slower than it could be; empty: it is not; None: not told.
        facts: name -> clocks in MHz, power in watts, and what the host ran on.
        missing: column -> why the device's temperature and limits are not told.
        at_s: seconds since 1970.
    """

    temp_c: float | None
    held_back: frozenset[str] | None
    facts: Facts
    missing: dict[str, str]
    at_s: float = field(default_factory=time.time)


Looker = Callable[[], Look]


@contextmanager
def looker(device: str, device_name: str | None) -> Iterator[Looker]:
    """A function that looks at a device.

    Args:
        device: the engine's own name; "cpu" for the host.
        device_name: the product's name, several joined by ", " as `Facts` has them; None for the host.
    """
    if device == "cpu" or sys.platform == "darwin":  # an Apple GPU shares the host's chip and its heat
        yield _Host().look
        return
    governors = _governors()
    with nvml.open_gpus(device_name or "") as gpus:
        yield lambda: _at_gpus(gpus, device_name or device, governors)


class _Host:
    def __init__(self) -> None:
        self._sensors = heat.cpu_sensors()
        self._counters = heat.cpu_throttle_files()
        self._throttled = heat.throttle_count(self._counters)
        self._governors = _governors()

    def look(self) -> Look:
        pressure = heat.thermal_pressure()
        return Look(
            temp_c=heat.highest_c(self._sensors),
            held_back=self._held_back(pressure),
            facts=_host_facts(self._governors) | {"thermal_pressure": pressure},
            missing=_NOT_TOLD_BY_MACOS if sys.platform == "darwin" else _NOT_TOLD_BY_HOST,
        )

    def _held_back(self, pressure: str | None) -> frozenset[str] | None:
        """By macOS's level, or by whether Intel's counters moved since the last look."""
        if pressure is not None:
            return frozenset() if pressure == "nominal" else frozenset({f"thermal ({pressure})"})
        before, self._throttled = self._throttled, heat.throttle_count(self._counters)
        if before is None or self._throttled is None:
            return None
        return frozenset({"thermal"}) if self._throttled > before else frozenset()


def _at_gpus(gpus: list[nvml.OpenGpu], name: str, governors: str | None) -> Look:
    """The hottest and the slowest of them; where several have the name, the idle ones are neither."""
    states = [gpu.state() for gpu in gpus]
    temperatures = [state.temp_c for state in states if state.temp_c is not None]
    reasons = [state.held_back for state in states if state.held_back is not None]
    facts = _host_facts(governors)
    for number, state in enumerate(states):
        gpu = "gpu" if len(states) == 1 else f"gpu{number}"
        told = asdict(state)
        facts |= {f"{gpu}_{key}": told[key] for key in _GPU_FACTS}
    why = "NVIDIA's driver does not tell" if gpus else f"nothing that can be read tells it of {name}"
    return Look(
        temp_c=max(temperatures, default=None),
        held_back=frozenset().union(*reasons) if reasons else None,
        facts=facts,
        missing={"temp_c_max": why, "throttled": why},
    )


def _host_facts(governors: str | None) -> Facts:
    """What the host's speed hangs on at this moment."""
    return {"cpu_mhz": governor.highest_mhz(), "governor": governors, "power_source": power_source()}


def _governors() -> str | None:
    """Read once: on a large host these are hundreds of files, and nobody changes them while a model runs."""
    return "; ".join(map(str, governor.policies())) or None


_GPU_FACTS = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "power_limit_w")
_NOT_TOLD_BY_HOST = {
    "temp_c_max": "no temperature sensor of the processor is to be seen, as in most virtual machines",
    "throttled": "the kernel counts no thermal throttling of this processor, as in most virtual machines",
}
_NOT_TOLD_BY_MACOS = {
    "temp_c_max": "macOS tells no temperature without administrator's rights",
    "throttled": "macOS did not tell its thermal pressure",
}
