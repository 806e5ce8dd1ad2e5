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

if TYPE_CHECKING:
    from backends.base import Accelerator
    from harness.machine.bandwidth.curve import Measured
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
    """The host and every accelerator that the plan uses, by name; measured now where no run has done so before.

    A machine that only simulates has none.
    """
    works = [work for work in plan.works if BACKENDS[work.backend].requires]
    if not works:
        return {}
    used = {work.accelerator.name: work.accelerator for work in works if work.accelerator}
    # A model that an engine splits may lie on the host in part, whatever it is asked for.
    found = {HOST: _memory(plan, None, reporter)}
    return found | {name: _memory(plan, accelerator, reporter) for name, accelerator in used.items()}


def _memory(plan: Plan, accelerator: Accelerator | None, reporter: Reporter) -> DeviceMemory:
    name = accelerator.name if accelerator else HOST
    spec, source = spec_bandwidth(
        plan.machine,
        accelerator.name if accelerator else None,
        accelerator.memory_bytes if accelerator else None,
    )
    try:
        return DeviceMemory(name, spec, source, _measured(plan, name, reporter))
    except UserError as error:  # a ceiling is worth less than the run
        reporter.note(f"no measured ceiling: {error}")
        return DeviceMemory(name, spec, source, None, str(error))


def _measured(plan: Plan, name: str, reporter: Reporter) -> Measured:
    if known := bandwidth.load_cached(plan.machine, name):
        return known
    what = f"measuring the memory bandwidth of {'this machine' if name == HOST else name}, once"
    return bandwidth.measured(plan.machine, _device(name), partial(_report, reporter, what))


def _device(name: str) -> bandwidth.Device:
    if name == HOST:
        return bandwidth.host()
    readers = describe(backend for backend in bandwidth.READERS if BACKENDS[backend].installed)
    device = bandwidth.accelerator(name, readers)
    if device is None:
        raise UserError(f"no installed engine can read the memory of {name}; torch or mlx built for it could")
    return device


def _report(reporter: Reporter, what: str, _: str, share: float) -> None:
    reporter.doing(what, share * bandwidth.BUDGET_S, (1 - share) * bandwidth.BUDGET_S)
