"""What will run, in which order, and how long it should take. Everything that can be refused is refused here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from harness import engine_choice, limits
from harness.errors import UserError
from harness.machine.hardware import Machine, inspect
from harness.models import paired
from harness.models.artifacts import disk_needed
from harness.models.cache import check_room
from harness.prompt.ids import prompt_ids, repeated
from harness.quality.measured import cost
from harness.quantise.artifact import has_original, to_write
from harness.quantise.names import check_known, own_name
from harness.schedule import SHORT_GEN, cases_of, schedule, seconds
from harness.support import clamped, format_obstacle, other_types, unsupported
from harness.work import Work, combinations, weights_setting
from results.errors import ResultsError
from results.read import read
from results.safe_text import as_file_name, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from backends.base import EngineInfo
    from harness.models.progress import Progress
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
        prompt_ids: the tokens of the user's text for each model, in place of random ones.
        suite: label of the fixed list of cases that this is a part of; None for a run of the user's own.
        left_out: cases that a work does not do though others do.
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
    prompt_ids: Mapping[ModelSource, NDArray[np.int32]] = field(default_factory=dict, compare=False)
    suite: str | None = None
    left_out: frozenset[tuple[Work, Case]] = frozenset()

    def cases_of(self, work: Work) -> tuple[Case, ...]:
        """What one of its works does, in order."""
        return tuple(case for case in self.cases if (work, case) not in self.left_out)

    @property
    def seconds(self) -> float:
        """Estimated time of all launches and of measuring quality, without preparing the models."""
        launches_s = (seconds([work], self.cases_of(work), self.launches, self.repetitions) for work in self.works)
        return sum(launches_s) + sum(cost(work).seconds for work in self.works)

    @property
    def disk_bytes(self) -> int:
        """Bytes that preparing the models will write."""
        return disk_bytes(self.works)

    @property
    def memory_bytes(self) -> int:
        """The most memory that one of its works needs, roughly."""
        needed = ((limits.memory_needed(work, self.cases_of(work)), cost(work).memory_bytes) for work in self.works)
        return max((n_bytes for each in needed for n_bytes in each), default=0)


@dataclass(frozen=True)
class Seen:
    """What a plan runs on.

    Attributes:
        machine: this one.
        engines: those to run, by name.
    """

    machine: Machine
    engines: dict[str, EngineInfo]


def make_plan(options: Options, seen: Seen | None = None, progress: Progress | None = None) -> Plan:
    """Decide what to run.

    Args:
        options: the request.
        seen: what to run it on, where that has been looked at before; what one of these engines cannot do is left
            out. None: look, which takes some seconds.
        progress: told of pickled weights that are written as safetensors.

    Raises:
        UserError: something in the request cannot be done on this machine.
    """
    check_known(options.weights or ())
    options = replace(options, backends=paired.engines(options))
    sources = paired.sources(options, progress)
    for source in sources:
        limits.check_context(source, cases_of(options, sources))
    machine = inspect() if seen is None else seen.machine
    label, output = named(options, machine)
    engines, notes = engine_choice.choose(options, machine) if seen is None else (seen.engines, [])
    runnable, left_out = _runnable(options, sources, engines, whatever_runs=seen is not None)
    began_short = options.resume and _has_case(output, label, SHORT_GEN)
    chosen = schedule(options, runnable, began_short=began_short)
    obstacles = (limits.memory_obstacle(work, chosen.cases) for work in runnable)
    check_room(disk_bytes(runnable))
    ids = prompt_ids(options.prompt, {work.source: None for work in runnable}, chosen.cases) if options.prompt else {}
    notes_of_all = (*notes_of(runnable), *repeated(ids, chosen.cases))
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
        timeout_s=options.timeout_s or longest_silence_s(runnable, chosen.cases),
        prompt_ids=ids,
        obstacle=next((obstacle for obstacle in obstacles if obstacle), None),
        notes=(*notes, *left_out, *notes_of_all, *([chosen.note] if chosen.note else [])),
    )


def named(options: Options, machine: Machine) -> tuple[str, Path]:
    """The machine's label in the rows, and the file that they are appended to.

    Raises:
        UserError: a label of nothing.
    """
    label = one_line(machine.label if options.machine is None else options.machine).strip()
    if not label:
        raise UserError("--machine needs a label with something in it")
    return label, options.output or Path(f"{as_file_name(label) or 'machine'}.csv")


def longest_silence_s(works: Sequence[Work], cases: tuple[Case, ...]) -> float:
    """After which a worker is taken for hung: ten times what its longest part should take."""
    parts = [work.estimate(cases) for work in works]
    longest = [max(part.load_s, *part.case_s.values(), *part.fill_s.values()) for part in parts]
    return max([_LEAST_TIMEOUT_S, *(10 * part_s for part_s in longest)])


def notes_of(works: Iterable[Work]) -> Iterable[str]:
    """What the user should know of these."""
    return dict.fromkeys(note for work in works for note in (clamped(work), other_types(work)) if note)


def _has_case(output: Path, label: str, n_gen: int) -> bool:
    """Whether the last row that a machine wrote generated so many tokens; no, if the file must be mended first."""
    try:
        rows = read(output) if output.exists() else pd.DataFrame({"machine": [], "n_gen": []})
    except ResultsError:
        return False
    generated = rows.loc[rows["machine"] == label, "n_gen"]
    return len(generated) > 0 and int(generated.iloc[-1]) == n_gen


def disk_bytes(works: Sequence[Work]) -> int:
    """Bytes that preparing the models will write.

    A file that several works read is written once. What is quantised here from a file needs that one too, unless it has
    been quantised before; a preset's weights are quantised tensor by tensor.
    """
    copies = {work: to_write(work) if work.has_quantised_copy else {} for work in works}
    originals = {
        (work.source, work.artifact_kind, work.exported_format)
        for work in works
        if not work.has_quantised_copy or (copies[work] and has_original(work))
    }
    quantised = {path: n_bytes for each in copies.values() for path, n_bytes in each.items()}
    return sum(disk_needed(*each) for each in originals) + sum(quantised.values())


def _runnable(
    options: Options, sources: list[ModelSource], engines: dict[str, EngineInfo], *, whatever_runs: bool
) -> tuple[list[Work], list[str]]:
    """The works that can run, and a note of each other; with `whatever_runs` no other is an error.

    What an engine cannot do is an error where the user named the engine. A weight format that it lacks is one where
    no other engine of the run has it either.
    """
    works = list(combinations(options, sources, engines))
    reasons = {work: reason for work in works if (reason := unsupported(work, options))}
    runnable = [work for work in works if work not in reasons]
    errors, notes = [], []
    for work, reason in reasons.items():
        lacks_format = reason == format_obstacle(work)
        is_error = not _has_format_elsewhere(work, runnable, options) if lacks_format else options.backends is not None
        if is_error:
            errors.append(f"{work.backend}, {work.source.name}: {reason}")
        in_format = f" in {work.settings.weights}" if lacks_format else ""
        notes.append(f"{work.backend} left out for {work.source.name}{in_format}: {reason}")
    if errors and not whatever_runs:
        raise UserError("; ".join(dict.fromkeys(errors)))
    if not runnable:
        raise UserError("nothing is left to run: " + "; ".join(notes))
    return runnable, list(dict.fromkeys(notes))


def _has_format_elsewhere(work: Work, runnable: Sequence[Work], options: Options) -> bool:
    """Whether another engine runs the model in what was asked for by the same word."""
    words = [each for each in options.weights or () if own_name(each, work.backend) == work.settings.weights]
    return any(
        other.source.name == work.source.name
        and other.settings.weights in {weights_setting(word, other.source, other.backend) for word in words}
        for other in runnable
        if other.backend != work.backend
    )
