"""What this machine is made of, read without any engine."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cpuinfo
import psutil

from harness.machine import nvml

if TYPE_CHECKING:
    from backends.install import Vendor

# An AMD processor's built-in graphics own less than this; a card owns more. Only a card is worth stopping a run for.
_LEAST_CARD_BYTES = 4 * 2**30
_AMD = "0x1002"


@dataclass(frozen=True)
class Gpu:
    """One GPU that this machine has, whether or not an engine can use it."""

    vendor: Vendor
    name: str
    memory_bytes: int | None  # None where the driver does not tell (unified memory)


@dataclass(frozen=True)
class Machine:
    """The hardware and system columns of every row."""

    os: str  # with its version and the processor's instruction set
    cpu: str
    physical_cores: int
    ram_bytes: int
    gpus: tuple[Gpu, ...]

    @property
    def label(self) -> str:
        """A name for the machine from its hardware alone: nothing in it identifies a person."""
        what = self.gpus[0].name if self.gpus else f"{self.cpu} {self.physical_cores} cores"
        return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((?:R|TM)\)|NVIDIA|GeForce", "", what).lower()).strip("-")


def inspect() -> Machine:
    """Look at this machine."""
    return Machine(
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=cpuinfo.get_cpu_info().get("brand_raw") or platform.processor() or platform.machine(),
        physical_cores=physical_cores(),
        ram_bytes=psutil.virtual_memory().total,
        gpus=(*_nvidia(), *_apple(), *_amd()),
    )


def physical_cores() -> int:
    """Physical cores that this process may use; the default number of threads of every engine."""
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return max(1, min(cores, allowed))


def _nvidia() -> list[Gpu]:
    return [Gpu("nvidia", gpu.name, gpu.memory_bytes) for gpu in nvml.gpus()]


def _apple() -> list[Gpu]:
    if sys.platform != "darwin" or platform.machine() != "arm64":
        return []
    return [Gpu("apple", cpuinfo.get_cpu_info().get("brand_raw", "Apple GPU"), None)]


def _amd() -> list[Gpu]:
    gpus = []
    for vendor in sorted(Path("/sys/class/drm").glob("card[0-9]*/device/vendor")):
        with contextlib.suppress(OSError, ValueError):
            memory = int((vendor.parent / "mem_info_vram_total").read_text())
            if vendor.read_text().strip() == _AMD and memory >= _LEAST_CARD_BYTES:
                gpus.append(Gpu("amd", "AMD Radeon", memory))
    return gpus
