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


@dataclass(frozen=True)
class NvidiaGpu:
    """One GPU as the driver describes it."""

    name: str
    memory_bytes: int | None  # None where the driver does not tell


def gpus() -> list[NvidiaGpu]:
    """Every NVIDIA GPU of this machine; none without a driver."""
    with _devices() as handles:
        return [NvidiaGpu(_name(handle), _memory_bytes(handle)) for handle in handles]


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
