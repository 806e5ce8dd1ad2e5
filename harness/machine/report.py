"""What `tokenroof machine` says: the hardware, the installed engines, what is wrong and how to mend it."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from backends.install import install_line
from backends.registry import BACKENDS, ENGINES
from harness.errors import UserError
from harness.machine import pci
from harness.machine.bandwidth import measured as bandwidth
from harness.machine.bandwidth.document import to_document
from harness.machine.catalog import AmbiguousDeviceError
from harness.machine.engines import describe
from harness.machine.hardware import inspect
from harness.machine.spec import catalog_device, spec_bandwidth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backends.base import Accelerator, EngineInfo
    from harness.machine.bandwidth.curve import Measured
    from harness.machine.bandwidth.sweep import Progress
    from harness.machine.hardware import Gpu, Machine


@dataclass(frozen=True)
class Memory:
    """One memory that can hold a model, and its bandwidth by the vendor's figures and as it was measured."""

    name: str  # of the accelerator, or of the CPU
    vendor: str | None  # of the accelerator; None for the CPU and where only an engine knows the device
    catalog_id: str | None
    memory_bytes: int | None
    bandwidth_spec_gbs: float | None
    bandwidth_source: str  # or why there is no bandwidth
    measured: Measured | None = None
    unmeasured: str | None = None  # why it could not be measured; None where nobody tried


@dataclass(frozen=True)
class Engine:
    """One engine of the registry."""

    name: str
    installed: bool
    version: str | None = None
    build: str | None = None
    accelerators: tuple[Accelerator, ...] = ()  # that it can really use
    error: str | None = None  # why it cannot be loaded


@dataclass(frozen=True)
class Problem:
    """Something that keeps this machine from its best, and what to do."""

    what: str
    fix: str


@dataclass(frozen=True)
class Report:
    """This machine as tokenroof sees it."""

    label: str
    os: str
    physical_cores: int
    host: Memory
    accelerators: tuple[Memory, ...]
    engines: tuple[Engine, ...]
    problems: tuple[Problem, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = asdict(self)
        for memory, plain in zip(
            (self.host, *self.accelerators), (values["host"], *values["accelerators"]), strict=True
        ):
            plain["measured"] = to_document(memory.measured) if memory.measured else None
        return values


def report(progress: Progress, *, measure: bool = False) -> Report:
    """Look at this machine and ask its engines, each in a process of its own.

    Args:
        progress: told what is being measured.
        measure: measure every memory anew; else the report holds what was measured before.
    """
    machine = inspect()
    described = describe(name for name in ENGINES if BACKENDS[name].installed)
    found = report_on(machine, described, pci.cards())

    def with_speed(memory: Memory, device_name: str) -> Memory:
        if not measure:
            return replace(memory, measured=bandwidth.load_cached(machine, device_name))
        device = bandwidth.host() if memory is found.host else bandwidth.accelerator(device_name, described)
        if device is None:
            return replace(memory, unmeasured="no installed engine can read it; torch or mlx built for it could")
        try:
            return replace(memory, measured=bandwidth.measured(machine, device, progress, refresh=True))
        except UserError as error:
            return replace(memory, unmeasured=str(error))

    accelerators = tuple(with_speed(memory, memory.name) for memory in found.accelerators)
    return replace(found, host=with_speed(found.host, bandwidth.host().name), accelerators=accelerators)


def report_on(machine: Machine, described: Mapping[str, EngineInfo | str], cards: list[pci.Card]) -> Report:
    """The report on a machine.

    Args:
        machine: as `hardware.inspect` gives it.
        described: the installed engines, as `engines.describe` gives them.
        cards: on the PCI bus, as `pci.cards` gives them.
    """
    engines = tuple(_engine(name, described.get(name)) for name in ENGINES)
    return Report(
        label=machine.label,
        os=machine.os,
        physical_cores=machine.physical_cores,
        host=_memory(machine, None),
        accelerators=_accelerators(machine, engines),
        engines=engines,
        problems=(*_driver_problems(machine, cards), *_engine_problems(machine, engines)),
    )


def _memory(machine: Machine, device: Gpu | Accelerator | None) -> Memory:
    name, size = (None, None) if device is None else (device.name, device.memory_bytes)
    bandwidth, source = spec_bandwidth(machine, name, size)
    try:
        known = catalog_device(machine, name, size)
    except AmbiguousDeviceError:
        known = None
    return Memory(
        name=name or machine.cpu,
        vendor=getattr(device, "vendor", None),
        catalog_id=known.id if known else None,
        memory_bytes=machine.ram_bytes if device is None else size,
        bandwidth_spec_gbs=None if bandwidth is None else bandwidth / 1e9,
        bandwidth_source=source,
    )


def _accelerators(machine: Machine, engines: tuple[Engine, ...]) -> tuple[Memory, ...]:
    """The machine's GPUs; where none can be seen without an engine, those that the engines see."""
    if machine.gpus:
        return tuple(_memory(machine, gpu) for gpu in machine.gpus)
    seen = {accelerator.name: accelerator for engine in engines for accelerator in engine.accelerators}
    return tuple(_memory(machine, accelerator) for accelerator in seen.values())


def _engine(name: str, described: EngineInfo | str | None) -> Engine:
    if described is None:
        return Engine(name, installed=False)
    if isinstance(described, str):
        return Engine(name, installed=True, error=described)
    return Engine(name, True, described.version, described.build, described.accelerators)


def _driver_problems(machine: Machine, cards: list[pci.Card]) -> list[Problem]:
    answering = {gpu.vendor for gpu in machine.gpus}
    return [
        Problem(
            f"{card.name or 'an NVIDIA GPU'} is on the PCI bus, but NVIDIA's driver does not answer",
            "install NVIDIA's driver, or reboot if it has just been updated; in a container, pass the GPU through",
        )
        for card in cards
        if card.vendor == "nvidia" and "nvidia" not in answering
    ]


def _engine_problems(machine: Machine, engines: tuple[Engine, ...]) -> list[Problem]:
    if not any(engine.installed for engine in engines):
        return [Problem("no engine is installed", 'pip install "tokenroof[all]"')]
    problems = []
    for engine in engines:
        lines = [install_line(engine.name, gpu.vendor, platform.system()) for gpu in machine.gpus]
        line = next(filter(None, lines), None)
        if engine.error:
            again = f'pip install --force-reinstall --no-cache-dir "tokenroof[{BACKENDS[engine.name].extra}]"'
            problems.append(Problem(f"{engine.name} cannot be loaded: {engine.error}", line or again))
        elif engine.installed and line and not engine.accelerators:
            problems.append(Problem(f"{engine.name} cannot use this machine's {machine.gpus[0].name}", line))
    return problems
