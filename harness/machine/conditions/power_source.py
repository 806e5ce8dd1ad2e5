"""Mains or battery."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import psutil

from harness.machine.conditions import files

_SUPPLIES = Path("/sys/class/power_supply")


def power_source() -> Literal["mains", "battery"] | None:
    """What the machine runs on; None where it has no battery, or does not tell."""
    if sys.platform == "linux":
        return _listed()
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if battery is None or battery.power_plugged is None:
        return None
    return "mains" if battery.power_plugged else "battery"


def _listed() -> Literal["mains", "battery"] | None:
    """By the kernel's list. psutil would take a wireless mouse's battery for the machine's; its scope is "Device"."""
    supplies = [folder for folder in _SUPPLIES.glob("*") if files.text(folder / "scope") != "Device"]
    batteries = [folder for folder in supplies if files.text(folder / "type") == "Battery"]
    if any(files.text(folder / "online") == "1" for folder in supplies if folder not in batteries):
        return "mains"
    if any(files.text(folder / "status") == "Discharging" for folder in batteries):
        return "battery"
    return "mains" if batteries else None
