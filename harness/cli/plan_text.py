"""A plan in words, for --dry-run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.suites.budget import duration
from results.amounts import counted, size

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
        f"rows      {counted(len(plan.cases), 'case')} × {counted(plan.repetitions, 'repetition')}, to {plan.output}",
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
        f"rows      {_product(plan)}, to {plan.output}",
        f"needs     about {duration(plan.seconds)} of measuring, {size(plan.disk_bytes)} of disk for models, "
        f"{size(plan.memory_bytes)} of memory",
        *([f"cannot    {plan.obstacle}"] if plan.obstacle else []),
        *(f"note      {note}" for note in plan.notes),
    ]
    return "\n".join(lines)


def machine_line(plan: Plan) -> str:
    """What the machine is, and what the rows call it."""
    machine = plan.machine
    gpus = "".join(f", {gpu.name}" for gpu in machine.gpus)
    return (
        f"machine   {plan.label}: {machine.cpu}, {counted(machine.physical_cores, 'core')}, "
        f"{size(machine.ram_bytes)}{gpus}, {machine.os}"
    )


def _product(plan: Plan) -> str:
    """How the number of rows comes about."""
    factors = (
        *((len(plan.works), "run"), (len(plan.cases), "case")),
        *((plan.launches, "launch", "launches"), (plan.repetitions, "repetition")),
    )
    return " × ".join(counted(*factor) for factor in factors)
