"""Measured read bandwidth and matrix rates of this machine's devices, kept in the user's cache.

Kept by the machine's hardware and the device's product name, whichever engine measured it: a GPU does not get faster
memory with another engine, and a run with llama.cpp, which has no kernel of its own to offer, can use what torch read.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.base import EngineInfo
from backends.registry import BACKENDS
from harness.errors import UserError
from harness.machine.bandwidth.document import from_document, to_document
from harness.machine.hardware import physical_cores
from harness.models import cache
from harness.process import Worker, WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.machine.bandwidth.curve import Measured
    from harness.machine.bandwidth.sweep import Progress
    from harness.machine.hardware import Machine

_BUDGET_S = 15.0  # the aim is 20 s with the worker's start, and with a last round that takes longer than the others
_REMOTE_BUDGET_S = 3.0  # in every run: it is not kept
_REMOTE_MOST_BYTES = 2**28  # its working set comes over the network first
_SILENCE_S = 120  # the first import of a large library from a slow disk
READERS = ("torch", "mlx", "llama.cpp")  # those that can read memory, the best first
_MPS = "mps"


@dataclass(frozen=True)
class Device:
    """A memory, the processor beside it, and who can measure them."""

    name: str  # the accelerator's product name; "cpu" for the host
    id: str  # "cpu", or the accelerator's id in `backend`
    backend: str | None  # None: numpy alone
    rpc: tuple[str, ...] = ()  # endpoints that the engine reaches it through, if it is another machine's

    @property
    def budget_s(self) -> float:
        """The time that a measurement may take, roughly."""
        return _REMOTE_BUDGET_S if self.rpc else _BUDGET_S


def host() -> Device:
    """This machine's memory and CPU; read by torch's kernels too, where torch is installed."""
    return Device("cpu", "cpu", "torch" if BACKENDS["torch"].installed else None)


def accelerator(name: str, engines: Mapping[str, EngineInfo | str]) -> Device | None:
    """The accelerator of this product name, by an engine that can read its memory; None where none can.

    Args:
        name: as any engine gives it.
        engines: what is installed, as `harness.machine.engines.describe` returns it.
    """
    found = [
        Device(name, each.id, backend)
        for backend in READERS
        if isinstance(info := engines.get(backend), EngineInfo)
        for each in info.accelerators
        if each.name == name
    ]
    # On a Mac all see the GPU; Metal is MLX's own ground, and torch's is still nearer to it than llama.cpp's.
    return min(found, key=lambda device: (device.backend == READERS[-1], device.id == _MPS), default=None)


def measured(machine: Machine, device: Device, progress: Progress, *, refresh: bool = False) -> Measured:
    """What the cache keeps of this device, or else a new measurement, which it keeps from then on.

    Args:
        machine: this one.
        device: one of its devices.
        progress: told what is being measured, and the share that is done.
        refresh: measure in any case.

    Raises:
        UserError: the device cannot be measured.
    """
    if device.rpc:  # whichever machine that was, the next to answer there may be another
        return _measure(device, progress)
    path = _path(machine, device.name)
    with cache.locked(path):  # two runs that measured at once would measure each other
        known = None if refresh else load_cached(machine, device.name)
        if known is None:
            known = _measure(device, progress)
            with cache.written_whole(path) as partial:
                partial.write_text(json.dumps(to_document(known)), encoding="utf-8")
        return known


def load_cached(machine: Machine, device_name: str) -> Measured | None:
    """What was measured of a device of this machine before; None if nothing was, or if the file is damaged."""
    try:
        return from_document(json.loads(_path(machine, device_name).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _measure(device: Device, progress: Progress) -> Measured:
    job = {
        "task": "bandwidth",
        "backend": device.backend,
        "device": device.id,
        "n_threads": physical_cores(),
        "budget_s": device.budget_s,
        "rpc": device.rpc,
        "most_bytes": _REMOTE_MOST_BYTES if device.rpc else None,
    }
    document = None
    try:
        with Worker(job) as worker:
            for event in worker.events(_SILENCE_S):
                if event["event"] == "failed":
                    raise UserError(f"the memory of {device.name} cannot be measured: {event['error']}")
                if event["event"] == "progress":
                    progress(event["what"], event["share"])
                else:
                    document = event["measured"]
    except WorkerDiedError as error:
        raise UserError(f"the memory of {device.name} cannot be measured: {error.reason}") from error
    return from_document(document)


def _path(machine: Machine, device_name: str) -> Path:
    gpus = sorted(f"{gpu.name} {gpu.cores}" for gpu in machine.gpus)
    # Whole GiB: what a system calls its memory differs by some KB from boot to boot.
    memory_gib = round(machine.ram_bytes / 2**30)
    hardware = [machine.cpu, machine.physical_cores, memory_gib, gpus, machine.power_mode, device_name]
    fingerprint = hashlib.sha256(json.dumps(hardware).encode()).hexdigest()[:12]
    slug = re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-")
    return cache.directory() / "bandwidth" / f"{slug}-{fingerprint}.json"
