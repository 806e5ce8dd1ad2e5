"""What will run, in which order, and how long it should take. Everything that can be refused is refused here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from harness import engine_choice, limits
from harness.errors import UserError
from harness.machine.hardware import Machine, inspect
from harness.models.source import check_room, disk_needed, resolve
from harness.quantise.artifact import to_write
from harness.quantise.names import check_known
from harness.schedule import SHORT_GEN, cases_of, schedule, seconds
from harness.support import clamped, other_types, unsupported
from harness.work import Work, combinations
from results.errors import ResultsError
from results.read import read
from results.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from backends.base import EngineInfo
    from harness.models.source import ModelSource
    from harness.options import Options
    from harness.workload import Case

_LEAST_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Plan:
    """A run that can be started with `harness.run(plan)`.

    Attributes:
        works: models in engines, in the order in which they run.
        cases: what each of them does, in order.
        launches: worker starts of each work.
        repetitions: rows of each case in a launch.
        obstacle: why the machine cannot hold one of its works; `run` then refuses.
        notes: choices that the user should know of.
    """

    works: tuple[Work, ...]
    cases: tuple[Case, ...]
    launches: int
    repetitions: int
    seed: int
    output: Path
    machine: Machine
    label: str
    resume: bool
    max_time_s: float | None
    timeout_s: float
    obstacle: str | None
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Estimated time of all launches, without preparing the models."""
        return seconds(list(self.works), self.cases, self.launches, self.repetitions)

    @property
    def disk_bytes(self) -> int:
        """Bytes that preparing the models will write."""
        return _disk_bytes(self.works)

    @property
    def memory_bytes(self) -> int:
        """The most memory that one of its works needs, roughly."""
        return max(limits.memory_needed(work, self.cases) for work in self.works)


@dataclass(frozen=True)
class Seen:
    """What a plan runs on.

    Attributes:
        machine: this one.
        engines: those to run, by name.
    """

    machine: Machine
    engines: dict[str, EngineInfo]


def make_plan(options: Options, seen: Seen | None = None) -> Plan:
    """Decide what to run.

    Args:
        options: the request.
        seen: what to run it on, where that has been looked at before; what one of these engines cannot do is left
            out. None: look, which takes some seconds.

    Raises:
        UserError: something in the request cannot be done on this machine.
    """
    check_known(options.weights or ())
    sources = [resolve(spec) for spec in options.models]
    for source in sources:
        limits.check_context(source, cases_of(options, sources))
    machine = inspect() if seen is None else seen.machine
    label = one_line(machine.label if options.machine is None else options.machine).strip()
    if not label:
        raise UserError("--machine needs a label with something in it")
    output = options.output or Path(f"{_file_name(label)}.csv")
    engines, notes = engine_choice.choose(options, machine) if seen is None else (seen.engines, [])
    may_leave_out = options.backends is None or seen is not None
    runnable, left_out = _runnable(options, sources, engines, may_leave_out=may_leave_out)
    began_short = options.resume and _has_case(output, label, SHORT_GEN)
    chosen = schedule(options, runnable, began_short=began_short)
    obstacles = (limits.memory_obstacle(work, chosen.cases) for work in runnable)
    parts = [work.estimate(chosen.cases) for work in runnable]
    longest_part_s = max(max(part.load_s, *part.case_s.values(), *part.fill_s.values()) for part in parts)
    check_room(_disk_bytes(runnable))
    return Plan(
        works=tuple(runnable),
        cases=chosen.cases,
        launches=chosen.launches,
        repetitions=chosen.repetitions,
        seed=options.seed,
        output=output,
        machine=machine,
        label=label,
        resume=options.resume,
        max_time_s=options.max_time_s,
        timeout_s=options.timeout_s or max(_LEAST_TIMEOUT_S, 10 * longest_part_s),
        obstacle=next((obstacle for obstacle in obstacles if obstacle), None),
        notes=(*notes, *left_out, *_of_works(runnable), *([chosen.note] if chosen.note else [])),
    )


def _of_works(works: Iterable[Work]) -> Iterable[str]:
    return dict.fromkeys(note for work in works for note in (clamped(work), other_types(work)) if note)


def _has_case(output: Path, label: str, n_gen: int) -> bool:
    """Whether the last row that a machine wrote generated so many tokens; no, if the file must be mended first."""
    try:
        rows = read(output) if output.exists() else pd.DataFrame({"machine": [], "n_gen": []})
    except ResultsError:
        return False
    generated = rows.loc[rows["machine"] == label, "n_gen"]
    return len(generated) > 0 and int(generated.iloc[-1]) == n_gen


def _file_name(label: str) -> str:
    """A label may hold anything; a file's name in this folder may not."""
    return re.sub(r"[^\w.-]+", "-", label).strip("-.")[:100] or "machine"


def _disk_bytes(works: Sequence[Work]) -> int:
    """A preset's checkpoint is written once, and read by the export of each GGUF file, as that by its quantised copies.

    What has been quantised before needs no original.
    """
    copies = {work: to_write(work) if work.is_quantised_here else {} for work in works}
    from_original = [work for work in works if copies[work] or not work.is_quantised_here]
    hf = {work.source for work in from_original if work.source.origin == "preset"}
    gguf = {(work.source, work.exported_format) for work in from_original if work.artifact_kind == "gguf"}
    quantised = {path: n_bytes for each in copies.values() for path, n_bytes in each.items()}
    return (
        sum(disk_needed(source, "hf", None) for source in hf)
        + sum(disk_needed(source, "gguf", weights) for source, weights in gguf)
        + sum(quantised.values())
    )


def _runnable(
    options: Options, sources: list[ModelSource], engines: dict[str, EngineInfo], *, may_leave_out: bool
) -> tuple[list[Work], list[str]]:
    """What an engine cannot do is an error where the user named the engine, else a note."""
    runnable, notes = [], []
    for work in combinations(options, sources, engines):
        reason = unsupported(work, options)
        if reason is None:
            runnable.append(work)
        elif not may_leave_out:
            raise UserError(f"{work.backend}, {work.source.name}: {reason}")
        else:
            notes.append(f"{work.backend} left out for {work.source.name}: {reason}")
    if not runnable:
        raise UserError("nothing is left to run: " + "; ".join(notes))
    return runnable, list(dict.fromkeys(notes))
