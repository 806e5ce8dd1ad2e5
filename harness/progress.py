"""What a person sees while a run goes on; the same for the command line and a notebook."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.text import Text

from harness.work import name_of
from harness.workload import Case
from results.amounts import significant, size

if TYPE_CHECKING:
    from pathlib import Path

    from harness.rows import Row

_STYLES = {"failed": "red", "skipped": "yellow"}


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


def _case(row: Row) -> Case:
    tokens = row["n_depth"], row["n_prompt"], row["n_gen"]
    return Case(*tokens, row["batch"], row["kv_cache"], row.get("prompt_file") or "")


def _said(row: Row) -> str:
    rates = (("prefill_tok_s", "prefill"), ("decode_tok_s", "decode"))
    told = ", ".join(f"{name} {significant(row[column], 4)}" for column, name in rates if row.get(column))
    ttft_s = row.get("ttft_client_s")  # of a server, which shows no prefill
    ttft = f"TTFT {significant(1e3 * ttft_s, 4)} ms" if ttft_s else ""
    return ", ".join(filter(None, [ttft, f"{told} tok/s" if told else ""]))


class _TimeLeft(ProgressColumn):
    """The estimate, counting down between two events."""

    def render(self, task: Task) -> Text:
        """Of a task with the fields `left_s` and `since`."""
        return Text(time_left(task.fields["left_s"] - (time.monotonic() - task.fields["since"])))


class ConsoleReporter(Reporter):
    """A progress bar with the time left, on standard error; plain lines where that is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live = self._console.is_terminal or self._console.is_jupyter
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            _TimeLeft(),
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
            self._started = time.monotonic()
            if not self._live:
                self._say(f"{label}, {size(total)}")
                self._label = label
        left_s = (time.monotonic() - self._started) * (total - done) / max(done, 1)
        self._show(label, f"{label}, {size(done)} of {size(total)}", done / max(total, 1), left_s)

    def note(self, text: str) -> None:
        """Say it above the bar."""
        self._console.print(f"note: {text}", style="yellow", highlight=False, markup=False, soft_wrap=True)

    def doing(self, what: str, done_s: float, left_s: float) -> None:
        """Move the bar."""
        self._show(what, what, done_s / (done_s + left_s) if left_s else 1.0, left_s)

    def row(self, row: Row) -> None:
        """One line a row, which tells it from all others of the run."""
        work = name_of(row["model"], row["backend"], row["engine_settings"]["asked"])
        case = f"{work}: {_case(row)}"
        if row["status"] != "ok":
            error = str(row["error"]).removeprefix(f"{work} ")
            text, style = f"{case} {row['status']}: {error}", _STYLES[row["status"]]
        else:
            text, style = f"{case} #{row['launch']}.{row['repetition']}: {_said(row)}", None
        self._console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _show(self, label: str, text: str, share: float, left_s: float) -> None:
        if not self._live and label != self._label:
            self._say(f"{label} … {time_left(left_s)}")
        self._label = label
        if not self._live:
            return
        if self._task is None:
            self._task = self._progress.add_task(text, total=1.0, left_s=left_s, since=time.monotonic())
            self._progress.start()
        self._progress.update(self._task, description=text, completed=share, left_s=left_s, since=time.monotonic())


def time_over(output: Path, *, has_rows: bool) -> str:
    """What is left when --max-time is over.

    Args:
        output: the CSV of the run.
        has_rows: whether the run has written any.
    """
    if not has_rows:
        return "--max-time was over before anything was measured; give it longer"
    return f"--max-time is over; {output} holds what was measured, --resume goes on"


def time_left(seconds: float) -> str:
    """For people: `about 40 s left`, `about 3 min left`."""
    if seconds < 1:
        return "any moment"
    return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"
