"""A plan in words, for --dry-run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.plan import Plan


def plan_text(plan: Plan) -> str:
    """What would run, and what it needs."""
    machine, seconds = plan.machine, plan.seconds
    duration = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    gpus = "".join(f", {gpu.name}" for gpu in machine.gpus)
    lines = [
        f"machine   {plan.label}: {machine.cpu}, {machine.physical_cores} cores, "
        f"{machine.ram_bytes / 1e9:.1f} GB{gpus}, {machine.os}",
        *(f"run       {work} on {work.accelerator.name if work.accelerator else 'the CPU'}" for work in plan.works),
        *(f"case      {case}" for case in plan.cases),
        f"rows      {len(plan.works)} works × {len(plan.cases)} cases × {plan.launches} launches × "
        f"{plan.repetitions} repetitions, to {plan.output}",
        f"needs     about {duration} of measuring, {plan.disk_bytes / 1e9:.1f} GB of disk for models, "
        f"{plan.memory_bytes / 1e9:.1f} GB of memory",
        *([f"cannot    {plan.obstacle}"] if plan.obstacle else []),
        *(f"note      {note}" for note in plan.notes),
    ]
    return "\n".join(lines)
