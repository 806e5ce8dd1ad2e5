"""What a person sees: plain lines in a log, a bar on a terminal."""

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from backends.base import EngineInfo
from harness.models.source import resolve_shape
from harness.options import Options
from harness.progress import ConsoleReporter, time_left, time_over
from harness.work import Work, combinations
from harness.workload import grid

LONG = "the installed engine left something out, " * 10


def _row(**columns: object) -> dict[str, object]:
    return {
        "model": "llama", "backend": "torch", "engine_settings": {"asked": {"weights": "bf16"}}, "n_prompt": 512,
        "n_gen": 128, "n_depth": 0, "batch": 1, "kv_cache": "on", "prompt_file": None, "launch": 2, "repetition": 3,
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
    assert writing == "writing llama, 2.00 GB", "no rate is known yet, so no time is promised"
    assert lines == [
        f"note: {LONG}",
        "llama on torch: measuring … about 3 min left",
        "llama bf16 on torch: p512 n128 d0 #2.3: prefill 1234, decode 56.78 tok/s",
        "llama on llama.cpp: loading … any moment",
    ]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (_row(batch=4, n_depth=4096), "p512 n128 d4096 B4 #2.3: prefill 1234, decode 56.78 tok/s"),
        (
            _row(kv_cache="off", prompt_file="a.txt"),
            "p512 n128 d0 no cache of a.txt #2.3: prefill 1234, decode 56.78 tok/s",
        ),
        (_row(n_prompt=0, prefill_tok_s=None), "p0 n128 d0 #2.3: decode 56.78 tok/s"),
        (_row(n_gen=0, decode_tok_s=None), "p512 n0 d0 #2.3: prefill 1234 tok/s"),
        (_row(status="failed", error="out of [bold] memory"), "p512 n128 d0 failed: out of [bold] memory"),
        (_row(status="skipped", error="llama bf16 on torch needs 9 GB"), "p512 n128 d0 skipped: needs 9 GB"),
    ],
)
def test_a_row_is_a_line(row: dict[str, object], line: str) -> None:
    assert _said(lambda reporter: reporter.row(row), terminal=False) == f"llama bf16 on torch: {line}\n"


LISTS = {
    "models": ("gpt2-mini", "llama-3.2-1b"), "weights": ("bf16", "q8_0"), "n_threads": (1, 64), "n_batch": (64, 128),
    "n_gpu_layers": (0, -1), "n_cpu_moe": (0, 1), "kv_offload": (True, False), "split_mode": ("layer", "none"),
    "tensor_split": ((), (3.0, 1.0)), "flash_attn": ("on", "off"), "kv_k_format": ("auto", "q8_0"),
    "kv_v_format": ("f16", "q8_0"), "cache_kind": ("auto", "static"), "kv_cache": ("on", "off"), "batch": (1, 2),
    "n_depth": (0, 8), "n_prompt": (16, 32), "n_gen": (8, 9), "n_ubatch": (64, 32),
}  # fmt: skip


def _works(options: Options) -> list[Work]:
    """In llama.cpp, which has all settings; nothing is started."""
    sources = [resolve_shape(model) for model in options.models]
    return list(combinations(options, sources, {"llama.cpp": EngineInfo("1", "build")}))


def test_what_is_usual_goes_without_saying() -> None:
    (work,) = _works(Options(models="gpt2-mini"))
    assert str(work) == "gpt2-mini bf16 on llama.cpp"


@pytest.mark.parametrize("name", LISTS)
def test_the_lines_of_two_works_or_cases_differ_whatever_a_run_has_several_of(name: str) -> None:
    """Every list that a run takes."""
    options = Options(models="gpt2-mini", n_prompt=16, n_gen=8)
    options = replace(options, **{name: LISTS[name]})
    cases = grid(options.n_depth, options.n_prompt, options.n_gen, options.batch, options.kv_cache)
    rows = [
        _row(
            model=work.source.name,
            backend=work.backend,
            engine_settings={"asked": work.settings.asked()},
            **asdict(case),
        )
        for work in _works(options)
        for case in cases
    ]
    lines = _said(lambda reporter: [reporter.row(row) for row in rows], terminal=False).splitlines()
    assert len(set(lines)) == len(lines) == 2


def test_every_list_is_tried() -> None:
    """But for the engines, whose names are in each line, and what all works of a run share."""
    shared = {"backends", "artifacts", "rpc", "cases"}
    lists = {each.name for each in fields(Options) if "tuple" in str(each.type)} - shared
    assert lists == set(LISTS)


def test_a_server_has_no_settings_to_tell() -> None:
    row = _row(backend="openai", engine_settings={"asked": {}}, prefill_tok_s=None, ttft_client_s=0.0123)
    line = "llama on openai: p512 n128 d0 #2.3: TTFT 12.30 ms, decode 56.78 tok/s\n"
    assert _said(lambda reporter: reporter.row(row), terminal=False) == line


def test_a_note_is_not_read_as_markup() -> None:
    said = _said(lambda reporter: reporter.note('pip install "tokenroof[all]"'), terminal=False)
    assert said == 'note: pip install "tokenroof[all]"\n'


def test_a_terminal_shows_a_bar_that_is_gone_in_the_end() -> None:
    said = _said(_a_run, terminal=True)
    assert "writing llama, 1.00 MB of 2.00 GB" in said
    assert "llama on llama.cpp: loading" in said
    hide, show, erase_line, line_up = "\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A"
    assert said.count(hide) == said.count(show) == 1
    assert said.rindex(show) > said.rindex("loading"), "the cursor is back when the bar is gone"
    ending = said[said.rindex("loading") :]
    assert erase_line in ending
    assert ending.endswith(line_up + erase_line)
    assert "note: " + LONG in said, "a long note stays one line, to copy from"
    assert "llama bf16 on torch: p512 n128 d0 #2.3: prefill 1234, decode 56.78 tok/s\n" in said


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


def test_a_file_that_holds_nothing_is_not_said_to_hold_what_was_measured() -> None:
    assert time_over(Path("out.csv"), has_rows=False) == (
        "--max-time was over before anything was measured; give it longer"
    )
    assert time_over(Path("out.csv"), has_rows=True) == (
        "--max-time is over; out.csv holds what was measured, --resume goes on"
    )
