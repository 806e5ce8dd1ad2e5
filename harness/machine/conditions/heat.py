"""The host's temperature, and whether heat holds it back."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from harness.machine.conditions import files

_SENSORS = Path("/sys/class/hwmon")
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")  # Intel, AMD (two drivers), small ARM boards
_CORES = Path("/sys/devices/system/cpu")

# Levels of macOS, from 0 (libkern/OSThermalNotification.h).
_PRESSURE = ("nominal", "moderate", "heavy", "trapping", "sleeping")
_PRESSURE_NAME = b"com.apple.system.thermalpressurelevel"


def cpu_sensors() -> list[Path]:
    """The files of the processor's temperature sensors; none in most virtual machines, and elsewhere than on Linux."""
    found = []
    for chip in sorted(_SENSORS.glob("hwmon*")):
        if files.text(chip / "name") in _CPU_SENSORS:
            labels = {path: files.text(path.with_name(f"{path.stem[:-6]}_label")) for path in chip.glob("temp*_input")}
            # AMD's Tctl is a figure for fans, up to 27 °C above the die where the kernel gives that one too.
            found += [path for path, label in labels.items() if label != "Tctl" or "Tdie" not in labels.values()]
    return sorted(found)


def highest_c(sensors: list[Path]) -> float | None:
    """The highest of some sensors in °C; None without any that answers."""
    values = [value for sensor in sensors if (value := files.number(sensor)) is not None]
    return max(values) / 1000 if values else None


def cpu_throttle_files() -> list[Path]:
    """Intel processors: where the kernel counts how often heat made a core or a package slower."""
    return sorted(_CORES.glob("cpu[0-9]*/thermal_throttle/*_throttle_count"))


def throttle_count(counters: list[Path]) -> int | None:
    """How often that was since boot, all together; None without a counter that answers."""
    values = [value for counter in counters if (value := files.number(counter)) is not None]
    return sum(values) if values else None


def thermal_pressure() -> str | None:
    """How hot macOS finds the machine: "nominal", or "moderate" and worse when it slows it down; None elsewhere.

    The level is the one that `powermetrics` prints for root alone; the system publishes it to everybody (notify(3)).
    """
    if sys.platform != "darwin":
        return None
    library, token = _pressure_token()
    level = ctypes.c_uint64()
    if token is None or library.notify_get_state(token, ctypes.byref(level)):
        return None
    return _PRESSURE[level.value] if level.value < len(_PRESSURE) else f"level {level.value}"


@cache
def _pressure_token() -> tuple[ctypes.CDLL, ctypes.c_int | None]:
    library, token = ctypes.CDLL("/usr/lib/libSystem.B.dylib"), ctypes.c_int()
    failed = library.notify_register_check(_PRESSURE_NAME, ctypes.byref(token))
    return library, None if failed else token
