"""Suites in words: what they hold, and what one will do here."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from harness.cli.plan_text import machine_line
from harness.suites.budget import duration
from results.amounts import counted, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harness.suites.catalog import Suite
    from harness.suites.plan import Part, SuitePlan
    from harness.workload import Case


def suite_text(plan: SuitePlan) -> str:
    """What a suite would run and skip here, and what it needs."""
    first = plan.parts[0].plan
    n_runs = sum(len(part.plan.cases_of(work)) for part in plan.parts for work in part.plan.works)
    n_kept = sum(len(part.measured) for part in plan.parts)
    n_skipped = sum(len(part.skipped) for part in plan.parts)
    lines = [
        f"suite     {plan.suite.label}",
        machine_line(first),
        *(line for part in plan.parts for line in _part(part)),
        *([f"kept      {counted(n_kept, 'row')} that the run to resume has measured"] if n_kept else []),
        f"rows      {counted(n_runs, 'case')} × {counted(first.launches, 'launch', 'launches')} × "
        f"{counted(first.repetitions, 'repetition')}, and {counted(n_skipped, 'case')} skipped, to {first.output}",
        f"needs     about {duration(plan.seconds)} of measuring, up to {size(plan.disk_bytes)} of disk for the "
        f"models of one format at a time, {size(plan.memory_bytes)} of memory",
        *(f"note      {note}" for note in dict.fromkeys((*plan.notes, *_notes(plan)))),
    ]
    return "\n".join(lines)


def contents(suite: Suite) -> Iterator[str]:
    """One line for each entry of a suite."""
    for entry in suite.entries:
        kv_cache = "" if entry.kv_format == "auto" else f", {entry.kv_format} KV cache"
        yield f"{entry.model} {entry.weights}{kv_cache}: {cases_text(entry.cases)}"


def cases_text(cases: Iterable[Case]) -> str:
    """`p512 n128 d0,8192, p128 n0 d0`: cases that differ in depth alone together."""
    groups = itertools.groupby(cases, key=lambda case: (case.n_prompt, case.n_gen, case.batch))
    texts = []
    for (n_prompt, n_gen, batch), alike in groups:
        depths = ",".join(str(case.n_depth) for case in alike)
        texts.append(f"p{n_prompt} n{n_gen} d{depths}" + ("" if batch == 1 else f" B{batch}"))
    return ", ".join(texts)


def _part(part: Part) -> Iterator[str]:
    plan = part.plan
    for work in plan.works:
        where = work.accelerator.name if work.accelerator else "the CPU"
        layers = f", about {work.settings.n_gpu_layers} layers there" if work in part.guessed else ""
        yield f"run       {work} on {where}{layers}: {cases_text(plan.cases_of(work))}"
    if plan.works:
        yield f"          about {duration(plan.seconds)} of measuring, {size(plan.disk_bytes)} of disk"
    for (work, reason), alike in itertools.groupby(part.skipped, key=lambda each: (each.work, each.reason)):
        yield f"skip      {work}: {cases_text(each.case for each in alike)}: {reason.removeprefix(f'{work} ')}"


def _notes(plan: SuitePlan) -> Iterator[str]:
    return (note for part in plan.parts for note in part.plan.notes)
