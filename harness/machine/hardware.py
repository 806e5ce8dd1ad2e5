"""What this machine is made of, read without any engine."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import cpuinfo
import psutil

from harness.machine import nvml, pci
from results.amounts import counted
from results.machine_label import machine_label

if TYPE_CHECKING:
    from backends.install import Vendor

# An AMD processor's built-in graphics own less than this; a card owns more. Only a card is worth stopping a run for.
_LEAST_CARD_BYTES = 4 * 2**30
_UNNAMED = {"amd": "AMD Radeon", "intel": "Intel Arc"}
_BOARD = Path("/proc/device-tree/model")
_ANSWER_S = 10  # a system tool that says nothing for so long is taken for broken


@dataclass(frozen=True)
class Gpu:
    """One GPU that this machine has, whether or not an engine can use it."""

    vendor: Vendor
    name: str
    memory_bytes: int | None  # None where the driver does not tell (unified memory)
    cores: int | None = None  # of an Apple GPU
    # Peak memory bandwidth by the driver's own figures, and which they are; None where it tells none.
    bandwidth_bytes_s: int | None = None
    bandwidth_source: str | None = None


@dataclass(frozen=True)
class Machine:
    """The hardware and system columns of every row."""

    os: str  # with its version and the processor's instruction set
    cpu: str
    physical_cores: int
    ram_bytes: int
    gpus: tuple[Gpu, ...]
    board: str | None = None  # of a single-board computer, as its device tree names it
    power_mode: str | None = None  # of a Jetson: it sets the memory's clock

    @property
    def label(self) -> str:
        """A name for the machine from its hardware alone: nothing in it identifies a person."""
        what = self.gpus[0].name if self.gpus else f"{self.cpu} {counted(self.physical_cores, 'core')}"
        return machine_label(what)


def inspect() -> Machine:
    """Look at this machine."""
    board = _board()
    return Machine(
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=cpuinfo.get_cpu_info().get("brand_raw") or platform.processor() or platform.machine(),
        physical_cores=physical_cores(),
        ram_bytes=psutil.virtual_memory().total,
        gpus=(*_nvidia(), *_apple(), *_pci()),
        board=board,
        power_mode=_power_mode() if board and "Jetson" in board else None,
    )


def physical_cores() -> int:
    """Physical cores that this process may use; the default number of threads of every engine."""
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return max(1, min(cores, allowed))


def _nvidia() -> list[Gpu]:
    return [
        Gpu(
            "nvidia",
            gpu.name,
            gpu.memory_bytes,
            bandwidth_bytes_s=gpu.bandwidth_bytes_s,
            bandwidth_source=f"NVML {gpu.bus_width_bits} bit × {gpu.memory_clock_mhz} MHz × 2"
            if gpu.bandwidth_bytes_s
            else None,
        )
        for gpu in nvml.gpus()
    ]


def _apple() -> list[Gpu]:
    if sys.platform != "darwin" or platform.machine() != "arm64":
        return []
    cores = re.search(r'"gpu-core-count" = (\d+)', _said_by("ioreg", "-rc", "AGXAccelerator", "-d1"))
    name = cpuinfo.get_cpu_info().get("brand_raw", "Apple GPU")
    return [Gpu("apple", name, None, cores=int(cores[1]) if cores else None)]


def _pci() -> list[Gpu]:
    """AMD's and Intel's cards; NVIDIA's driver tells more than the bus."""
    return [
        Gpu(cast("Vendor", card.vendor), card.name or _UNNAMED[card.vendor], card.memory_bytes)
        for card in pci.cards()
        if (card.vendor == "amd" and (card.memory_bytes or 0) >= _LEAST_CARD_BYTES)
        or (card.vendor == "intel" and not card.integrated)
    ]


def _board() -> str | None:
    with contextlib.suppress(OSError):
        return _BOARD.read_text(encoding="utf-8", errors="replace").strip("\0\n ") or None
    return None


def _power_mode() -> str | None:
    mode = re.search(r"NV Power Mode: *(\S+)", _said_by("nvpmodel", "-q"))
    return mode[1] if mode else None


def _said_by(*command: str) -> str:
    """What a system tool prints; empty where there is no such tool or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
