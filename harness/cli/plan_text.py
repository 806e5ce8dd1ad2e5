"""A plan in words, for --dry-run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.suites.budget import duration

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.serving.plan import ServingPlan


def serving_plan_text(plan: ServingPlan) -> str:
    """What a server would be asked; it is not called."""
    device = plan.device.name if plan.device else "not named (--on)"
    requests = sum(case.batch for case in plan.cases) * (plan.repetitions + 1)
    named = "" if plan.served == plan.model else f", served as {plan.endpoint.without_secrets(plan.served)}"
    lines = [
        f"machine   {plan.label}: {plan.machine.cpu if plan.machine else device}",
        f"server    {plan.endpoint.shown}",
        f"model     {plan.model}{named}",
        *(f"case      {case}" for case in plan.cases),
        *([f"rate      {plan.rate:g} requests a second on average"] if plan.rate else []),
        f"rows      {len(plan.cases)} cases × {plan.repetitions} repetitions, to {plan.output}",
        f"needs     {requests} requests with the untimed ones, and a few short ones to fit the prompts' lengths",
        *(f"note      {note}" for note in plan.notes),
    ]
    return "\n".join(lines)


def plan_text(plan: Plan) -> str:
    """What would run, and what it needs."""
    lines = [
        machine_line(plan),
        *(f"run       {work} on {work.accelerator.name if work.accelerator else 'the CPU'}" for work in plan.works),
        *(f"case      {case}" for case in plan.cases),
        f"rows      {len(plan.works)} works × {len(plan.cases)} cases × {plan.launches} launches × "
        f"{plan.repetitions} repetitions, to {plan.output}",
        f"needs     about {duration(plan.seconds)} of measuring, {plan.disk_bytes / 1e9:.1f} GB of disk for models, "
        f"{plan.memory_bytes / 1e9:.1f} GB of memory",
        *([f"cannot    {plan.obstacle}"] if plan.obstacle else []),
        *(f"note      {note}" for note in plan.notes),
    ]
    return "\n".join(lines)


def machine_line(plan: Plan) -> str:
    """What the machine is, and what the rows call it."""
    machine = plan.machine
    gpus = "".join(f", {gpu.name}" for gpu in machine.gpus)
    return (
        f"machine   {plan.label}: {machine.cpu}, {machine.physical_cores} cores, "
        f"{machine.ram_bytes / 1e9:.1f} GB{gpus}, {machine.os}"
    )
