"""Runs a plan: launches take turns, every repetition becomes a row at once, and a failure costs its case alone."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from backends.registry import BACKENDS
from harness import prepare, resume
from harness.ceilings.columns import Ceilings
from harness.ceilings.memories import memories
from harness.clock import Clock
from harness.done import NOTHING
from harness.errors import UserError
from harness.launch import Launch
from harness.machine.conditions import before
from harness.models import cache
from harness.process import WorkerDiedError
from harness.progress import ConsoleReporter, Reporter, time_over
from harness.quality.measured import cost, quality_cells
from harness.rows import not_tried
from harness.tiers.endpoints import answers
from results import samples
from results.read import read
from results.store import Store
from results.verify import verify

if TYPE_CHECKING:
    import pandas as pd

    from harness.done import Done
    from harness.models.artifacts import Artifact
    from harness.plan import Plan
    from harness.quality.measured import QualityCells
    from harness.rows import Row
    from harness.work import Work
    from harness.workload import Case, Due


TIME_OVER = "--max-time was over before it"
_START_IT_AGAIN = "start it again with tokenroof serve-tier, and go on with tokenroof run --resume"


def new_run_id() -> str:
    """A name that no other run has."""
    return uuid.uuid4().hex[:12]


class TimeOverError(Exception):
    """The time that --max-time allows is used up."""


def run(plan: Plan, reporter: Reporter | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Run a plan and append its rows to its output file.

    Args:
        plan: from `make_plan`.
        reporter: told what happens; by default a progress bar.
        run_id: of the run that this plan is a part of; by default it is one of its own.

    Returns:
        The rows of this plan, read back from the file, with `verified` filled in from all rows that the file holds.
        When the run was resumed, those of its earlier part too, without failures that have been made good.

    Raises:
        TokenroofError: the machine cannot hold the plan, the output cannot be written, or a model not prepared.
    """
    return measure(plan, reporter, run_id).rows_in(verify(read(plan.output)))


@dataclass(frozen=True)
class Measured:
    """A plan that was run, and the name of its run."""

    plan: Plan
    artifacts: dict[Work, Artifact]
    run_id: str

    def rows_in(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Its rows, of all that are in its output file, without failures that have been made good."""
        return resume.rows_of(self.plan, self.artifacts, rows, self.run_id)


def measure(
    plan: Plan, reporter: Reporter | None = None, run_id: str | None = None, earlier: pd.DataFrame | None = None
) -> Measured:
    """Run a plan and append its rows, without reading them back: a suite reads those of all its entries at once.

    Args:
        plan: as for `run`.
        reporter: likewise.
        run_id: likewise.
        earlier: the rows that the output file held, where somebody has read it; only a plan that resumes looks at it.

    Raises:
        TokenroofError: as `run`.
    """
    if plan.obstacle:
        raise UserError(plan.obstacle)
    reporter = reporter or ConsoleReporter()
    deadline = None if plan.max_time_s is None else time.monotonic() + plan.max_time_s
    try:
        store = Store(plan.output)
        used = {work.accelerator.name for work in plan.works if work.accelerator}
        for note in (*plan.notes, *before.warnings(sorted(used))):
            reporter.note(note)
        reporter.note(
            f"about {plan.seconds / 60:.0f} min of measuring, to {plan.output}"
            if plan.seconds > 90
            else f"about {plan.seconds:.0f} s of measuring, to {plan.output}"
        )
        with cache.in_use():
            artifacts = prepare.artifacts(plan, reporter)
            done = NOTHING
            if plan.resume:
                done = resume.measured(plan, artifacts, read(plan.output) if earlier is None else earlier, run_id)
            runner = _Runner(plan, artifacts, store, reporter, deadline, done, run_id)
            try:
                runner.run()
            finally:
                samples.fold(plan.output)
    finally:
        reporter.close()
    return Measured(plan, artifacts, runner.run_id)


class _Runner:
    """What is due, and what became of it."""

    def __init__(
        self,
        plan: Plan,
        artifacts: dict[Work, Artifact],
        store: Store,
        reporter: Reporter,
        deadline: float | None,
        done: Done[str],
        run_id: str | None,
    ) -> None:
        self._plan, self._artifacts, self._store, self._reporter = plan, artifacts, store, reporter
        self._deadline, self._n_kept = deadline, 0
        self.run_id = done.run_id or run_id or new_run_id()
        self._number = dict.fromkeys(plan.works, done.last_launch)
        self._engine_options: dict[Work, dict[str, Any]] = {}
        self._hopeless: set[tuple[Work, Case]] = set()
        self._qualities: dict[Work, QualityCells] = {}
        if plan.resume and done.run_id is None and run_id is None:
            reporter.note(f"{plan.output} holds nothing of this plan (machine {plan.label}), so it starts from scratch")
        each = [[(work, due) for due in resume.missing(plan, work, done.rows, artifacts[work])] for work in plan.works]
        # Launches of all works take turns, so that a machine that grows hot slows all of them alike.
        self._turns = [one for turn in zip_longest(*each) for one in turn if one is not None]
        self._clock = Clock(self._turns, plan.cases)
        self._quality_s = {work: cost(work).seconds for work in dict.fromkeys(work for work, _ in self._turns)}
        for work, seconds in self._quality_s.items():
            self._clock.expect(work, seconds)
        found = memories(plan, reporter) if self._turns else {}
        self._ceilings = {work: Ceilings(work, artifacts[work], found) for work in plan.works}

    def run(self) -> None:
        """Do what is due, or as much as --max-time allows."""
        if not self._turns:
            self._reporter.note(f"nothing is missing in {self._plan.output}")
        try:
            for work, due in self._turns:
                self._turn(work, self._hopeful(work, due))
        except TimeOverError:
            self._reporter.note(time_over(self._plan.output, has_rows=bool(self._n_kept or self._plan.suite)))
            if self._plan.suite:
                self._skip_untouched()

    def _skip_untouched(self) -> None:
        """A suite's cases are known beforehand, so each of them has a row."""
        plan = self._plan
        for work, case in resume.untouched(plan, self._artifacts, read(plan.output), self.run_id):
            weights_id = self._artifacts[work].weights_id
            row = not_tried(plan, work, case, self.run_id, status="skipped", reason=TIME_OVER, weights_id=weights_id)
            self._keep(row, None)

    def _hopeful(self, work: Work, due: Due) -> Due:
        """What is due without the cases that have failed; the clock forgets those."""
        left = {case: n for case, n in due.items() if (work, case) not in self._hopeless}
        for case in due.keys() - left.keys():
            self._clock.give_up(work, case, due[case], warm=False)
        if not left:
            self._clock.skip(work)
        return left

    def _turn(self, work: Work, due: Due) -> None:
        """Start workers until every case is measured or has failed; one that ends early is followed by another."""
        while due:
            self._number[work] += 1
            launch = Launch(
                self._plan,
                work,
                self._artifacts[work],
                ceilings=self._ceilings[work],
                quality=self._quality(work),
                run_id=self.run_id,
                number=self._number[work],
                due=due,
                engine_options=self._engine_options.get(work, {}),
                keep=self._keep,
                clock=self._clock,
                doing=self._doing,
            )
            try:
                launch.run()
            except WorkerDiedError as death:
                if due and (gone := [endpoint for endpoint in work.settings.rpc if not answers(endpoint)]):
                    launch.fail(f"the tier at {', '.join(gone)} no longer answers: {_START_IT_AGAIN}", all_cases=True)
                elif due and not self._try_fallback(work, death):
                    launch.fail(death.reason)
            self._hopeless |= {(work, case) for case in launch.failed}

    def _quality(self, work: Work) -> QualityCells:
        """Of a work's rows, asked before its first launch."""
        if work not in self._qualities:
            if expected_s := self._quality_s[work]:
                self._doing(f"{work}: comparing its answers with unquantised ones")
            told = self._reporter.preparing
            self._qualities[work] = quality_cells(work, self._artifacts[work], self._plan.timeout_s, told)
            if expected_s:
                self._clock.finish(work, expected_s)
        return self._qualities[work]

    def _try_fallback(self, work: Work, death: WorkerDiedError) -> bool:
        """After a crash, once: the settings that the engine is known to survive with."""
        fallback = BACKENDS[work.backend].after_crash
        if not (death.crashed and fallback) or work in self._engine_options:
            return False
        self._engine_options[work] = fallback
        settings = ", ".join(f"{name}={value}" for name, value in fallback.items())
        self._reporter.note(f"{work}: {death.reason}; once more with {settings}")
        return True

    def _keep(self, row: Row, sample: Row | None) -> None:
        """The sample first: a row whose intervals are lost would be worse than intervals without a row."""
        if sample is not None:
            samples.append_sample(self._plan.output, sample)
        self._store.append(row)
        self._n_kept += 1
        self._reporter.row(row)

    def _doing(self, what: str) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeOverError
        self._reporter.doing(what, self._clock.elapsed_s, self._clock.left_s)
