"""How fast the memories of this run's devices are: by their vendors, and measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from backends.registry import BACKENDS
from harness.errors import UserError
from harness.machine.bandwidth import measured as bandwidth
from harness.machine.engines import describe
from harness.machine.spec import spec_bandwidth
from harness.tiers.endpoints import without_hosts

if TYPE_CHECKING:
    from backends.base import Accelerator
    from harness.machine.bandwidth.curve import Measured
    from harness.machine.hardware import Machine
    from harness.plan import Plan
    from harness.progress import Reporter

HOST = "cpu"


@dataclass(frozen=True)
class DeviceMemory:
    """One memory and the processor beside it.

    Attributes:
        name: the accelerator's product name; `HOST` for the host.
        spec_bytes_s: the vendor's bandwidth; None: not known.
        spec_source: where that figure is from, or why there is none.
        measured: None: it could not be measured.
        unmeasured: why; None where it was.
    """

    name: str
    spec_bytes_s: int | None
    spec_source: str
    measured: Measured | None
    unmeasured: str | None = None


def memories(plan: Plan, reporter: Reporter) -> dict[str, DeviceMemory]:
    """The host and every accelerator that may hold a part of a model, by the engine's id; `HOST` is the host's.

    Measured now where no run has done so before; another machine's memory always, since nobody knows which it was.
    A machine that only simulates has none.
    """
    works = [work for work in plan.works if BACKENDS[work.backend].requires]
    if not works:
        return {}
    devices = {device.id: (device, work.settings.rpc) for work in works for device in work.accelerators}
    # A model that an engine splits may lie on the host in part, whatever it is asked for.
    found = {HOST: memory_of(plan.machine, None, (), reporter)}
    return found | {name: memory_of(plan.machine, device, rpc, reporter) for name, (device, rpc) in devices.items()}


def is_remote(accelerator: Accelerator) -> bool:
    """Whether it is lent by a server (--rpc); llama.cpp names such devices so."""
    return accelerator.id.startswith("RPC")


def memory_of(
    machine: Machine, accelerator: Accelerator | None, rpc: tuple[str, ...], reporter: Reporter
) -> DeviceMemory:
    """One of this machine's memories; the host's where there is no accelerator."""
    name = accelerator.name if accelerator else HOST
    spec, source = _spec(machine, accelerator)
    try:
        return DeviceMemory(name, spec, source, _measured(machine, accelerator, rpc, reporter))
    except UserError as error:  # a ceiling is worth less than the run
        reporter.note(f"no measured ceiling: {error}")
        return DeviceMemory(name, spec, source, None, without_hosts(str(error), rpc))


def _spec(machine: Machine, accelerator: Accelerator | None) -> tuple[int | None, str]:
    if accelerator is None:
        return spec_bandwidth(machine)
    if is_remote(accelerator):
        return None, "whoever serves it does not tell which memory it is"
    return spec_bandwidth(machine, accelerator.name, accelerator.memory_bytes)


def _measured(machine: Machine, accelerator: Accelerator | None, rpc: tuple[str, ...], reporter: Reporter) -> Measured:
    if accelerator and is_remote(accelerator):
        device = bandwidth.Device(accelerator.name, accelerator.id, "llama.cpp", rpc)
        what = f"measuring the memory bandwidth of {device.name}"
    else:
        name = accelerator.name if accelerator else HOST
        if known := bandwidth.load_cached(machine, name):
            return known
        device = _device(name)
        what = f"measuring the memory bandwidth of {'this machine' if name == HOST else name}, once"
    return bandwidth.measured(machine, device, partial(_report, reporter, what, device.budget_s))


def _device(name: str) -> bandwidth.Device:
    if name == HOST:
        return bandwidth.host()
    readers = describe(backend for backend in bandwidth.READERS if BACKENDS[backend].installed)
    device = bandwidth.accelerator(name, readers)
    if device is None:
        raise UserError(f"no installed engine can read the memory of {name}; torch or mlx built for it could")
    return device


def _report(reporter: Reporter, what: str, budget_s: float, _: str, share: float) -> None:
    reporter.doing(what, share * budget_s, (1 - share) * budget_s)
