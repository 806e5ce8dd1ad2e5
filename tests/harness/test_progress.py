"""What a person sees: plain lines in a log, a bar on a terminal."""

from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from harness.progress import ConsoleReporter, time_left

LONG = "the installed engine left something out, " * 10


def _row(**columns: object) -> dict[str, object]:
    return {
        "backend": "torch", "n_prompt": 512, "n_gen": 128, "n_depth": 0, "batch": 1, "launch": 2, "repetition": 3,
        "status": "ok", "prefill_tok_s": 1234.5, "decode_tok_s": 56.78, **columns,
    }  # fmt: skip


def _said(report: Callable[[ConsoleReporter], object], *, terminal: bool) -> str:
    """What a reporter writes to a console 80 columns wide."""
    out = StringIO()
    reporter = ConsoleReporter(Console(file=out, force_terminal=terminal, width=80, color_system=None))
    report(reporter)
    reporter.close()
    return out.getvalue()


def _a_run(reporter: ConsoleReporter) -> None:
    for done in (10**6, 10**9, 2 * 10**9):
        reporter.preparing("writing llama", done, 2 * 10**9)
    reporter.note(LONG)
    for left_s in (200.0, 190.0, 50.0):
        reporter.doing("llama on torch: measuring", 10.0, left_s)
    reporter.row(_row())
    reporter.doing("llama on llama.cpp: loading", 100.0, 0.5)


def test_a_log_gets_plain_lines_and_each_phase_once() -> None:
    writing, *lines = _said(_a_run, terminal=False).splitlines()
    assert writing == "writing llama, 2.0 GB", "no rate is known yet, so no time is promised"
    assert lines == [
        f"note: {LONG}",
        "llama on torch: measuring … about 3 min left",
        "torch p512 n128 d0 #2.3: prefill 1234, decode 56.78 tok/s",
        "llama on llama.cpp: loading … any moment",
    ]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (_row(batch=4, n_depth=4096), "torch p512 n128 d4096 B4 #2.3: prefill 1234, decode 56.78 tok/s"),
        (_row(n_prompt=0, prefill_tok_s=None), "torch p0 n128 d0 #2.3: decode 56.78 tok/s"),
        (_row(n_gen=0, decode_tok_s=None), "torch p512 n0 d0 #2.3: prefill 1234 tok/s"),
        (_row(status="failed", error="out of [bold] memory"), "torch p512 n128 d0 failed: out of [bold] memory"),
    ],
)
def test_a_row_is_a_line(row: dict[str, object], line: str) -> None:
    assert _said(lambda reporter: reporter.row(row), terminal=False) == line + "\n"


def test_a_note_is_not_read_as_markup() -> None:
    said = _said(lambda reporter: reporter.note('pip install "tokenroof[all]"'), terminal=False)
    assert said == 'note: pip install "tokenroof[all]"\n'


def test_a_terminal_shows_a_bar_that_is_gone_in_the_end() -> None:
    said = _said(_a_run, terminal=True)
    assert "writing llama, 0.0 of 2.0 GB" in said
    assert "llama on llama.cpp: loading" in said
    hide, show, erase_line, line_up = "\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A"
    assert said.count(hide) == said.count(show) == 1
    assert said.rindex(show) > said.rindex("loading"), "the cursor is back when the bar is gone"
    ending = said[said.rindex("loading") :]
    assert erase_line in ending
    assert ending.endswith(line_up + erase_line)
    assert "note: " + LONG in said, "a long note stays one line, to copy from"
    assert "torch p512 n128 d0 #2.3: prefill 1234, decode 56.78 tok/s\n" in said


def test_a_reporter_that_was_told_nothing_says_nothing() -> None:
    assert _said(lambda _: None, terminal=True) == _said(lambda _: None, terminal=False) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "any moment"),
        (0.9, "any moment"),
        (1, "about 1 s left"),
        (39.6, "about 40 s left"),
        (89, "about 89 s left"),
        (91, "about 2 min left"),
        (180, "about 3 min left"),
        (7200, "about 120 min left"),
    ],
)
def test_time_left_is_for_people(seconds: float, text: str) -> None:
    assert time_left(seconds) == text
