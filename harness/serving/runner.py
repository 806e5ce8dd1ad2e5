"""Runs a plan on a server: case after case, round after round, each a row at once."""

from __future__ import annotations

import asyncio
import secrets
import signal
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anyio.from_thread import start_blocking_portal

from backends.openai.client import Client
from backends.openai.errors import ServerError
from harness.done import NOTHING
from harness.progress import ConsoleReporter, Reporter, time_over
from harness.serving import resume
from harness.serving.case_run import CaseRun, Round
from harness.serving.ceilings import ServingCeilings
from harness.serving.connected import connected
from harness.serving.round import CLOCK
from harness.serving.rows import ServingRows
from results import samples
from results.amounts import counted
from results.read import read
from results.store import Store
from results.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    import pandas as pd

    from harness.rows import Row
    from harness.serving.plan import ServingPlan
    from harness.workload import Case


def run(plan: ServingPlan, reporter: Reporter | None = None) -> pd.DataFrame:
    """Run a plan and append its rows to its output file.

    Args:
        plan: from `plan.make_plan`.
        reporter: told what happens; by default a progress bar.

    Returns:
        The rows of this plan, read back from the file; when the run was resumed, those of its earlier part too.

    Raises:
        TokenroofError: the output cannot be written.
    """
    reporter = reporter or ConsoleReporter()
    try:
        runner = _Runner(plan, Store(plan.output), reporter)
        for note in plan.notes:
            reporter.note(note)
        try:
            _complete(runner.run)
        finally:
            samples.fold(plan.output)
    finally:
        reporter.close()
    return resume.rows_of(plan, verify(read(plan.output)), runner.run_id)


def _complete(what: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run it to its end, also from a notebook, whose own event loop has this thread; Ctrl-C ends it there, too."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(what())
    else:
        with start_blocking_portal() as portal:
            portal.call(what)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C takes effect at once, and not when the event loop hears of it."""
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():  # it is ignored, or not ours
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


class _Runner:
    """What is due, and what became of it."""

    def __init__(self, plan: ServingPlan, store: Store, reporter: Reporter) -> None:
        self._plan, self._store, self._reporter = plan, store, reporter
        self._done = resume.measured(plan) if plan.resume else NOTHING
        self.run_id = self._done.run_id or uuid.uuid4().hex[:12]
        self._salt = secrets.token_hex(8)
        self._rows = ServingRows(plan, self.run_id, self._done.last_launch + 1, self._salt)
        self._began = time.monotonic()
        self._rounds_done, self._rounds, self._n_kept = 0, 0, 0

    async def run(self) -> None:
        """Do what is due, or as much as --max-time allows."""
        plan = self._plan
        client = Client(
            plan.endpoint.base_url,
            plan.endpoint.api_key,
            auth=plan.endpoint.auth,
            patience_s=plan.silence_s,
            clock=CLOCK,
        )
        async with client:
            try:
                found = await connected(client, plan, self._salt, self._doing)
            except ServerError as error:
                if not self._note_done(due := self._due(None)):
                    self._fail_all(due, error)
                return
            due = self._due(found.server.name)
            if self._note_done(due):
                return
            with _interruptible():  # the bandwidth may have to be measured, which blocks the loop for seconds
                ceilings = ServingCeilings(plan, found.server.told, self._reporter)
            self._rows.connected(found.server, found.idle, ceilings)
            self._rounds = sum(plan.repetitions - done + 1 for done in due.values())
            for number, (case, done) in enumerate(due.items()):
                if not await self._case(CaseRun(plan, found, case, number << 20), case, done):
                    self._reporter.note(time_over(plan.output, has_rows=bool(self._n_kept)))
                    return

    def _note_done(self, due: dict[Case, int]) -> bool:
        if not due:
            self._reporter.note(f"nothing is missing in {self._plan.output}")
        return not due

    def _due(self, server: str | None) -> dict[Case, int]:
        """Cases that lack repetitions, and how many they have."""
        done = resume.cases_done(self._done, server)
        return {case: done[case] for case in self._plan.cases if done[case] < self._plan.repetitions}

    async def _case(self, run: CaseRun, case: Case, done: int) -> bool:
        """A warm-up and the rounds that a case lacks; False where the time is over."""
        repetition = done
        try:
            for repetition in range(done, self._plan.repetitions + 1):
                if self._is_over():
                    return False
                warms_up = repetition == done
                self._doing(f"{self._plan.model}: {case}, {'warming up' if warms_up else 'measuring'}")
                if warms_up:
                    await run.warm_up()
                else:
                    self._keep(case, repetition, await run.measure(repetition))
                self._rounds_done += 1
        except ServerError as error:
            self._fail(case, max(repetition, done + 1), error)
        return True

    def _keep(self, case: Case, repetition: int, found: Round) -> None:
        """The sample first: a row whose intervals are lost would be worse than intervals without a row."""
        row = self._rows.measured(case, repetition, found)
        samples.append_sample(self._plan.output, self._rows.sample(row, case, found))
        self._write(row)

    def _fail(self, case: Case, repetition: int, error: ServerError) -> None:
        self._write(self._failed(case, repetition, error))

    def _fail_all(self, due: dict[Case, int], error: ServerError) -> None:
        """A server that cannot be measured at all: a row for each case, and one line for people."""
        rows = [self._failed(case, done + 1, error) for case, done in due.items()]
        for row in rows:
            self._store.append(row)
        failed = counted(len(rows), "case")
        self._reporter.note(f"nothing of {self._plan.model} could be measured ({failed} failed): {rows[0]['error']}")

    def _failed(self, case: Case, repetition: int, error: ServerError) -> Row:
        return self._rows.failed(case, repetition, f"{self._plan.endpoint.shown}: {error}")

    def _write(self, row: Row) -> None:
        self._store.append(row)
        self._n_kept += 1
        self._reporter.row(row)

    def _is_over(self) -> bool:
        return self._plan.max_time_s is not None and time.monotonic() - self._began > self._plan.max_time_s

    def _doing(self, what: str) -> None:
        elapsed = time.monotonic() - self._began
        left = elapsed / self._rounds_done * (self._rounds - self._rounds_done) if self._rounds_done else 0.0
        self._reporter.doing(what, elapsed, left)
