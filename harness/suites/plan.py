"""What a suite will do on this machine, and what it will skip, with the reason. Every case is one or the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from harness import engine_choice
from harness.errors import UserError
from harness.experiments.fit import with_layers
from harness.machine.hardware import inspect
from harness.models.cache import check_room
from harness.models.source import resolve
from harness.options import Options
from harness.plan import Plan, disk_bytes, longest_silence_s, named, notes_of
from harness.quantise.names import own_name
from harness.suites.budget import Budget
from harness.suites.earlier import Earlier, earlier_run
from harness.suites.places import places
from harness.support import unsupported
from harness.work import combinations
from results.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from backends.base import EngineInfo
    from harness.plan import Seen
    from harness.suites.catalog import Entry, Suite
    from harness.work import Work
    from harness.workload import Case

# On what a suite runs; everything else that decides a rate is its own.
_LEFT_OPEN = ("device", "n_threads", "n_gpu_layers", "split_mode", "tensor_split", "rpc", "allow_partial")


@dataclass(frozen=True)
class Skipped:
    """A case that a work does not do."""

    work: Work
    case: Case
    reason: str


@dataclass(frozen=True)
class Part:
    """One entry of a suite.

    Attributes:
        entry: as declared.
        plan: of what can run; without works where nothing can.
        skipped: the rest.
        guessed: the works of the plan whose number of layers off the host is a guess until they are loaded.
        measured: the rows of the cases that an earlier run, which is resumed, has finished.
    """

    entry: Entry
    plan: Plan
    skipped: tuple[Skipped, ...]
    guessed: tuple[Work, ...]
    measured: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuitePlan:
    """A suite that can be started with `harness.run_suite(plan)`."""

    suite: Suite
    parts: tuple[Part, ...]
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Estimated time of measuring, without preparing the models."""
        return sum(part.plan.seconds for part in self.parts)

    @property
    def disk_bytes(self) -> int:
        """The most that preparing one entry's models will write; those of earlier ones make room where they must."""
        return max(part.plan.disk_bytes for part in self.parts)

    @property
    def memory_bytes(self) -> int:
        """The most memory that one of its works needs, roughly."""
        return max(part.plan.memory_bytes for part in self.parts)


def plan_suite(suite: Suite, options: Options, seen: Seen | None = None) -> SuitePlan:
    """Decide what of a suite this machine can do.

    Args:
        suite: from `catalog.named`.
        options: on what, how often and where to; what is run is the suite's, whatever they say.
        seen: as for `make_plan`.

    Raises:
        UserError: an engine that was named cannot run at all, or the request is faulty otherwise.
    """
    machine = inspect() if seen is None else seen.machine
    engines, notes = engine_choice.choose(options, machine) if seen is None else (seen.engines, [])
    label, output = named(options, machine)
    launches, repetitions = options.launches or suite.launches, options.repetitions or suite.repetitions
    earlier = _earlier(output, suite, label) if options.resume else Earlier()
    if options.resume and earlier.run_id is None:
        notes = [*notes, f"{output} holds nothing of {suite.label} on {label}, so it starts from scratch"]
    budget = Budget(options.max_time_s, launches, repetitions)
    parts = []
    for entry in suite.entries:
        choice = _chosen(entry, options, engines, budget, earlier, launches * repetitions)
        due = choice.due
        plan = Plan(
            works=tuple(due),
            cases=entry.cases,
            launches=launches,
            repetitions=repetitions,
            seed=Options.seed,
            output=output,
            machine=machine,
            label=label,
            resume=options.resume,
            max_time_s=options.max_time_s,
            timeout_s=options.timeout_s or longest_silence_s(list(due), entry.cases),
            obstacle=None,
            notes=tuple(notes_of(due)),
            suite=suite.label,
            left_out=frozenset((work, case) for work in due for case in entry.cases if case not in due[work]),
        )
        parts.append(Part(entry, plan, tuple(choice.skipped), tuple(choice.guessed), tuple(choice.measured)))
    return SuitePlan(suite, tuple(parts), tuple(notes))


def _earlier(output: Path, suite: Suite, label: str) -> Earlier:
    try:
        return earlier_run(output, suite.label, label)
    except ResultsError:  # the run repairs the file, or says why it cannot
        return Earlier()


@dataclass
class _Choice:
    """What is to become of an entry's cases; attributes as those of `Part`, and the cases that each work does."""

    due: dict[Work, tuple[Case, ...]] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    guessed: list[Work] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)

    def skip(self, work: Work, cases: Iterable[Case], reason: str) -> None:
        """Say of these why not."""
        self.skipped += [Skipped(work, case, reason) for case in cases]


def _chosen(
    entry: Entry, options: Options, engines: dict[str, EngineInfo], budget: Budget, earlier: Earlier, n_rows: int
) -> _Choice:
    choice = _Choice()
    for asked, work in _works(entry, options, engines):
        finished = {case: names for case in entry.cases if len(names := earlier.measured(work, case)) >= n_rows}
        choice.measured += chain.from_iterable(finished.values())
        left = tuple(case for case in entry.cases if case not in finished)
        if reason := unsupported(work, asked):
            choice.skip(work, left, reason)
            continue
        found = places(work, left)
        for case, reason in found.lacking.items():
            choice.skip(work, [case], reason)
        for guess, cases in found.fitting.items():
            known = None if guess == work else earlier.layers(work, entry.cases)
            placed = guess if known is None else with_layers(work, known)
            if reason := _no_room_on_disk([*choice.due, placed]):
                choice.skip(placed, cases, reason)
                continue
            within, over = budget.take(placed, cases)
            for case, reason in over.items():
                choice.skip(placed, [case], reason)
            if within:
                choice.due[placed] = within
                choice.guessed += [placed] if placed != work and known is None else []
    return choice


def _works(entry: Entry, options: Options, engines: dict[str, EngineInfo]) -> Iterator[tuple[Options, Work]]:
    """An entry's model in each engine, by that engine's own names of the formats."""
    source = resolve(entry.model)
    for backend, info in engines.items():
        kv_format = own_name(entry.kv_format, backend)
        asked = Options(
            models=(entry.model,),
            weights=(entry.weights,),
            cases=entry.cases,
            kv_k_format=(kv_format,),
            kv_v_format=(kv_format,),
            **{name: getattr(options, name) for name in _LEFT_OPEN},
        )
        for work in combinations(asked, [source], {backend: info}):
            yield asked, work


def _no_room_on_disk(works: list[Work]) -> str | None:
    """Why the disk cannot hold what the last of these needs beside the others; None if it can."""
    try:
        check_room(disk_bytes(works))
    except UserError as error:
        return str(error)
    return None
