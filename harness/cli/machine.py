"""`tokenroof machine`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from results.amounts import counted, significant, size

if TYPE_CHECKING:
    from harness.machine.report import Engine, Memory, Report


def machine(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure every memory's bandwidth anew, some 20 s each, and keep it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same for programs, as JSON.")] = False,
) -> int:
    """Describe this machine and its engines, and what is amiss.

    For what is amiss there is a line that mends it.
    """
    import json

    from rich.console import Console

    from harness.machine.conditions import before
    from harness.machine.report import report

    for warning in before.warnings([]) if measure else []:
        print(f"note: {warning}", file=sys.stderr)
    with Console(stderr=True).status("looking at this machine and its engines …") as status:
        found = report(lambda what, share: status.update(f"measuring, {share:.0%}: {what}"), measure=measure)
    print(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if as_json else _text(found))
    return 0


def _text(report: Report) -> str:
    lines = [
        f"{report.label}: {report.os}",
        "",
        f"cpu           {report.host.name}, {counted(report.physical_cores, 'physical core')}",
        f"memory        {_memory(report.host)}",
        *_measured(report.host),
    ]
    for memory in report.accelerators:
        lines += [f"accelerator   {memory.name}: {_memory(memory)}", *_measured(memory)]
    lines += [] if report.accelerators else ["accelerator   none found"]
    lines += ["", *(f"{engine.name:<13} {_engine(engine)}" for engine in report.engines)]
    for problem in report.problems:
        lines += ["", f"wrong: {problem.what}", f"mend:  {problem.fix}"]
    return "\n".join(lines)


def _memory(memory: Memory) -> str:
    room = "size not told by the driver" if memory.memory_bytes is None else size(memory.memory_bytes)
    if memory.bandwidth_spec_gbs is None:
        return f"{room}, bandwidth unknown: {memory.bandwidth_source}"
    return f"{room}, {significant(memory.bandwidth_spec_gbs, 4)} GB/s by the vendor ({memory.bandwidth_source})"


def _measured(memory: Memory) -> list[str]:
    """Its bandwidth curve and matrix rates; how to get them, where they were never measured."""
    measured = memory.measured
    if measured is None:
        return [f"  measured    {memory.unmeasured or 'not yet: --measure does it, and so does the first run'}"]
    lines = [f"  measured    {measured.measured_at}"]
    for point in measured.curve.points:
        steady = "" if point.kernels[point.kernel].stable else "  unsteady"
        lines.append(
            f"  {point.working_set_bytes / 2**20:>8.0f} MiB  {point.best_bytes_s / 1e9:>7.1f} GB/s  "
            f"(median {point.median_bytes_s / 1e9:.1f}, {point.kernel}){steady}"
        )
    lines += [
        f"  {name:>8}      {rate.best / 1e12:>7.3g} TFLOP/s in matrix products{'' if rate.stable else '  unsteady'}"
        for name, rate in measured.matrix.items()
    ]
    return lines + [f"  {name:>8}      no rate of matrix products: {why}" for name, why in measured.unavailable.items()]


def _engine(engine: Engine) -> str:
    if not engine.installed:
        return "not installed"
    if engine.error:
        return f"cannot be loaded: {engine.error}"
    devices = ", ".join(f"{accelerator.id} ({accelerator.name})" for accelerator in engine.accelerators)
    return f"{engine.version} ({engine.build}), {devices or 'CPU only'}"
