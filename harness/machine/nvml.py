"""What NVIDIA's driver tells (NVML), and nothing where it does not: a GB10 answers "not supported" to much of it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Clocks event reasons (NVML API reference), all but the idle GPU's own; drivers may add others.
_HELD_BACK = {
    0x002: "clocks set by hand",
    0x004: "power cap",
    0x008: "hardware slowdown",  # with one of the two below it, or power drawn too fast
    0x010: "sync boost",
    0x020: "thermal",
    0x040: "thermal",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability limit",
}
_IDLE = 0x001


@dataclass(frozen=True)
class NvidiaGpu:
    """One GPU as the driver describes it."""

    name: str
    memory_bytes: int | None  # None where the driver does not tell, as for the two below
    bus_width_bits: int | None = None
    memory_clock_mhz: int | None = None  # the highest that the driver allows

    @property
    def bandwidth_bytes_s(self) -> int | None:
        """Peak memory bandwidth: bus width × memory clock × 2, as CUDA's deviceQuery counts.

        NVML gives GDDR5, GDDR6, GDDR7 and HBM alike a clock that moves two bits a line and cycle: an RTX 4090 has
        384 bit × 10501 MHz × 2 = 1008 GB/s, an RTX 5090 512 bit × 14001 MHz, an A100 5120 bit × 1593 MHz.
        """
        if not self.bus_width_bits or not self.memory_clock_mhz:
            return None
        return self.bus_width_bits * self.memory_clock_mhz * 2 * 1_000_000 // 8


def gpus() -> list[NvidiaGpu]:
    """Every NVIDIA GPU of this machine; none without a driver."""
    with _devices() as handles:
        return [_gpu(handle) for handle in handles]


def process_bytes() -> tuple[int | None, str | None]:
    """GPU memory that this process holds, all GPUs together, as the driver counts it: contexts and pools included.

    Returns:
        bytes, or None and why.
    """
    with _devices() as handles:
        if not handles:
            return None, "no NVIDIA driver"
        used = [_ask(partial(_of_this_process, handle)) for handle in handles]
    known = [each for each in used if each is not None]
    return (sum(known), None) if known else (None, "the driver does not tell memory by process")


@dataclass(frozen=True)
class GpuState:
    """A GPU at one moment. None: the driver does not tell."""

    temp_c: int | None
    held_back: frozenset[str] | None  # why its clocks are lower than they could be; empty: they are not
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_w: float | None
    power_limit_w: float | None
    default_power_limit_w: float | None


class OpenGpu:
    """A GPU of a driver that is held open: opening it takes milliseconds and more, a question far less."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.name = _name(handle)

    def state(self) -> GpuState:
        """How it fares."""
        reasons = self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        return GpuState(
            temp_c=self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            held_back=None if reasons is None else held_back(reasons),
            sm_clock_mhz=self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            power_w=self._watts(pynvml.nvmlDeviceGetPowerUsage),
            power_limit_w=self._watts(pynvml.nvmlDeviceGetPowerManagementLimit),
            default_power_limit_w=self._watts(pynvml.nvmlDeviceGetPowerManagementDefaultLimit),
        )

    def energy_mj(self) -> int | None:
        """Millijoules that it took since the driver was loaded; from Volta on."""
        millijoules: int | None = self._ask(pynvml.nvmlDeviceGetTotalEnergyConsumption)
        return millijoules

    def _watts(self, question: Callable[..., Any]) -> float | None:
        milliwatts = self._ask(question)
        return None if milliwatts is None else milliwatts / 1000

    def _ask(self, question: Callable[..., Any], *what: Any) -> Any:
        return _ask(partial(question, self._handle, *what))


@contextmanager
def open_gpus(names: str) -> Iterator[list[OpenGpu]]:
    """The NVIDIA GPUs of some names, with the driver held open.

    Args:
        names: product names, joined by ", " as an engine gives them.
    """
    with _devices() as handles:
        yield [gpu for gpu in map(OpenGpu, handles) if gpu.name in names.split(", ")]


def held_back(reasons: int) -> frozenset[str]:
    """The names of NVML's clocks event reasons, a bit mask."""
    bits = (1 << position for position in range(reasons.bit_length()))
    return frozenset(_HELD_BACK.get(bit, f"reason {bit:#x}") for bit in bits if reasons & bit and bit != _IDLE)


@contextmanager
def _devices() -> Iterator[list[Any]]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield []
        return
    try:
        count = _ask(pynvml.nvmlDeviceGetCount) or 0
        handles = [_ask(partial(pynvml.nvmlDeviceGetHandleByIndex, index)) for index in range(count)]
        yield [handle for handle in handles if handle is not None]  # one that has fallen off the bus has none
    finally:
        _ask(pynvml.nvmlShutdown)


def _gpu(handle: Any) -> NvidiaGpu:
    return NvidiaGpu(
        _name(handle),
        _memory_bytes(handle),
        _ask(partial(pynvml.nvmlDeviceGetMemoryBusWidth, handle)),
        _ask(partial(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM)),
    )


def _name(handle: Any) -> str:
    name = _ask(partial(pynvml.nvmlDeviceGetName, handle)) or "NVIDIA GPU"
    return name if isinstance(name, str) else str(name.decode())


def _memory_bytes(handle: Any) -> int | None:
    memory = _ask(partial(pynvml.nvmlDeviceGetMemoryInfo, handle))
    return None if memory is None else int(memory.total)


def _of_this_process(handle: Any) -> int | None:
    """None where the driver does not list the process, as in a container, or hides its memory, as on Windows."""
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    used = [process.usedGpuMemory for process in processes if process.pid == os.getpid()]
    return None if not used or None in used else sum(used)


def _ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except pynvml.NVMLError:
        return None
