"""Runs a suite: its entries one after another, each a plan of its own under one run's name."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness import prepare
from harness.errors import UserError
from harness.experiments.fit import most_layers, with_layers
from harness.models import cache
from harness.models.cache import check_room
from harness.progress import ConsoleReporter
from harness.rows import not_tried
from harness.runner import TIME_OVER, Measured, measure, new_run_id
from harness.suites.earlier import Earlier, earlier_in
from harness.suites.plan import Skipped
from results.read import read
from results.store import Store
from results.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import pandas as pd

    from harness.plan import Plan
    from harness.progress import Reporter
    from harness.suites.plan import Part, SuitePlan
    from harness.work import Work


def run_suite(plan: SuitePlan, reporters: Callable[[], Reporter] = ConsoleReporter) -> pd.DataFrame:
    """Run a suite and append its rows to its output file: every case of every engine gets at least one.

    Args:
        plan: from `plan_suite`.
        reporters: makes one for each entry.

    Returns:
        The rows, read back from the file and verified; of a resumed run those of its earlier part too.

    Raises:
        TokenroofError: the output cannot be written.
    """
    first = plan.parts[0].plan
    store = Store(first.output)
    before = read(first.output) if first.resume else None
    earlier = Earlier() if before is None else earlier_in(before, plan.suite.label, first.label)
    run_id = earlier.run_id or new_run_id()
    deadline = None if first.max_time_s is None else time.monotonic() + first.max_time_s
    made_before = {artifact.path for artifact in cache.list_cached()}
    row_ids: list[str] = []
    done: list[Measured] = []
    for part in plan.parts:
        with closing(reporters()) as reporter:
            log = _Log(store, part.plan, run_id, reporter)
            row_ids += part.measured
            row_ids += _skip(log, earlier, part.skipped)
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                row_ids += _skip(log, earlier, _all(part.plan, TIME_OVER))
            else:
                _make_room(part.plan, made_before)
                names, ran = _run(part, log, left_s, before)
                row_ids += names
                done += ran
    rows = verify(read(first.output))  # once: a suite's file grows with each entry
    row_ids += (name for each in done for name in each.rows_in(rows)["row_id"])
    return rows[rows["row_id"].isin(row_ids)].reset_index(drop=True)


@dataclass(frozen=True)
class _Log:
    """Where the rows of an entry go."""

    store: Store
    plan: Plan
    run_id: str
    reporter: Reporter

    def untried(self, each: Skipped, status: str) -> str:
        """Write the row of a case that no worker is asked for, and name it."""
        row = not_tried(self.plan, each.work, each.case, self.run_id, status=status, reason=each.reason)
        self.store.append(row)
        self.reporter.row(row)
        return str(row["row_id"])


def _run(part: Part, log: _Log, left_s: float | None, before: pd.DataFrame | None) -> tuple[list[str], list[Measured]]:
    """Run what can run of an entry; a model that cannot be made costs its engine's cases alone.

    Returns:
        The names of the rows that say why a case was not run, and what was.
    """
    plan = part.plan
    names: list[str] = []
    for work in part.plan.works:
        try:
            plan = _replaced(plan, work, _made(part, work, log.reporter))
        except UserError as error:
            names += [log.untried(Skipped(work, case, str(error)), "failed") for case in plan.cases_of(work)]
            plan = replace(plan, works=tuple(other for other in plan.works if other != work))
    if not plan.works:
        return names, []
    try:
        return names, [measure(replace(plan, max_time_s=left_s), log.reporter, log.run_id, before)]
    except UserError as error:
        return [*names, *(log.untried(each, "failed") for each in _all(plan, str(error)))], []


def _make_room(plan: Plan, made_before: set[Path]) -> None:
    """Where the disk lacks room, give up the models that this run has made for earlier entries."""
    try:
        check_room(plan.disk_bytes)
    except UserError:
        with suppress(UserError):  # another run reads them
            cache.clean({artifact.path for artifact in cache.list_cached()} - made_before)


def _made(part: Part, work: Work, reporter: Reporter) -> Work:
    """Have a work's model on the disk, and put the most layers off the host that really fit, where that was a guess."""
    plan = part.plan
    with cache.in_use():
        artifact = prepare.artifacts(replace(plan, works=(work,)), reporter)[work]
        if work not in part.guessed:
            return work
        longest = max(plan.cases_of(work), key=lambda case: case.batch * case.context_tokens)
        return with_layers(work, most_layers(work, artifact, longest, plan.timeout_s, reporter))


def _replaced(plan: Plan, old: Work, new: Work) -> Plan:
    works = tuple(new if work == old else work for work in plan.works)
    left_out = frozenset((new if work == old else work, case) for work, case in plan.left_out)
    return replace(plan, works=works, left_out=left_out)


def _all(plan: Plan, reason: str) -> list[Skipped]:
    return [Skipped(work, case, reason) for work in plan.works for case in plan.cases_of(work)]


def _skip(log: _Log, earlier: Earlier, skipped: Iterable[Skipped]) -> list[str]:
    """A row for each, but for those that a resumed run has already. Names them."""
    return [earlier.skipped(each.work, each.case) or log.untried(each, "skipped") for each in skipped]
