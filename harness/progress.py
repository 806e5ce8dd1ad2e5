"""What a person sees while a run goes on; the same for the command line and a notebook."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from harness.rows import Row


class Reporter:
    """Told what happens, in order. This one says nothing."""

    def preparing(self, label: str, done: int, total: int) -> None:
        """A model file is being written: bytes done of the total."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def doing(self, what: str, done_s: float, left_s: float) -> None:
        """The run goes on: what it does now, the seconds behind it and, estimated, ahead."""

    def row(self, row: Row) -> None:
        """A row was appended."""

    def close(self) -> None:
        """The run is over, however it ended."""


class ConsoleReporter(Reporter):
    """A progress bar with the time left, on standard error; plain lines where that is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live = self._console.is_terminal or self._console.is_jupyter
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            disable=not self._live,
            transient=True,
        )
        self._task: TaskID | None = None
        self._label = ""
        self._started = time.monotonic()

    def preparing(self, label: str, done: int, total: int) -> None:
        """Show the bytes, and the time left at the rate so far."""
        if label != self._label:
            self._label, self._started = label, time.monotonic()
            self._say(label)
        elapsed = time.monotonic() - self._started
        left = f"{done / 1e9:.1f} of {total / 1e9:.1f} GB, {_time_left(elapsed * (total - done) / max(done, 1))}"
        self._show(label, done, total, left)

    def note(self, text: str) -> None:
        """Say it above the bar."""
        self._console.print(f"note: {text}", style="yellow", highlight=False, markup=False, soft_wrap=True)

    def doing(self, what: str, done_s: float, left_s: float) -> None:
        """Move the bar."""
        if what != self._label:
            self._label = what
            self._say(f"{what} … {_time_left(left_s)}")
        self._show(what, done_s, done_s + left_s, _time_left(left_s))

    def row(self, row: Row) -> None:
        """One line a row."""
        case = f"{row['backend']} p{row['n_prompt']} n{row['n_gen']} d{row['n_depth']} B{row['batch']}"
        where = f"launch {row['launch']} repetition {row['repetition']}"
        if row["status"] == "failed":
            text = f"{case} failed: {row['error']}"
            self._console.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
            return
        rates = (("prefill_tok_s", "prefill"), ("decode_tok_s", "decode"))
        said = ", ".join(f"{name} {row[column]:.4g} tok/s" for column, name in rates if row.get(column))
        self._console.print(f"{case} {where}: {said}", highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def _say(self, text: str) -> None:
        if not self._live:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _show(self, what: str, done: float, total: float, left: str) -> None:
        if not self._live:
            return
        if self._task is None:
            self._task = self._progress.add_task(what, total=total, left=left)
            self._progress.start()
        self._progress.update(self._task, description=what, completed=done, total=total, left=left)


def _time_left(seconds: float) -> str:
    return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


def console_reporter() -> Reporter:
    """The reporter for people: on standard error, so that standard output holds the result alone."""
    return ConsoleReporter(Console(file=sys.stderr))
