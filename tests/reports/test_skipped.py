"""Cases that a suite skipped have rows without rates: they are told of, and counted as neither measured nor failed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.gather import Gathered, gather
from reports.page.answer import answer
from reports.page.doubts import find_doubts
from reports.show import show
from reports.skipped import skipped_rows
from reports.summary import summarise
from reports.table import render
from reports.words import words
from results.compare.left_out import failures, name_failed

NO_ROOM = "llama-3.1-70b q4_k_m on llama.cpp needs about 43.5 GB, but 12.0 GB are free in this machine's memory"
Write = Callable[..., Path]
Row = Callable[..., dict[str, Any]]


@pytest.fixture
def skipped(make_row: Row) -> Row:
    """As a suite writes it."""
    rates = ("ttft_s", "prefill_tok_s", "decode_tok_s", "tpot_s", "decode_ceiling_tok_s", "mbu", "peak_host_bytes")

    def make(**cells: Any) -> dict[str, Any]:
        told = {"status": "skipped", "error": NO_ROOM, "suite": "standard-1", "backend": "llama.cpp"}
        return make_row(**dict.fromkeys(rates), **told | {"model": "llama-3.1-70b", "weight_format": "q4_k_m"} | cells)

    return make


@pytest.fixture
def gathered(write_rows: Write, make_row: Row, skipped: Row) -> Gathered:
    return gather([write_rows(make_row(suite="standard-1"), skipped(), skipped(n_depth=8192))])


def test_such_rows_are_sound(gathered: Gathered) -> None:
    assert len(gathered.own) == 3
    assert gathered.faulty.empty


@pytest.mark.parametrize("lang", ["en", "ja"])
def test_a_report_tells_of_them_with_their_reason(gathered: Gathered, lang: str) -> None:
    said = words(lang)
    doubts = find_doubts(gathered)
    (line,) = doubts[doubts["kind"] == "skipped"].to_dict("records")
    assert (line["reason"], line["n_rows"], len(line["cases"])) == (NO_ROOM, 2, 2)
    assert "failed" not in set(doubts["kind"])
    sentences = answer(gathered, summarise(gathered.own), said)
    assert said["answer.skipped"].format(n=2) in sentences
    assert not any("repetitions" in sentence or "失敗" in sentence for sentence in sentences)
    assert f"2 × llama.cpp, llama-3.1-70b: {NO_ROOM}" in show(gathered, said, width=200, blocks=False)


def test_the_table_has_a_line_for_them(gathered: Gathered) -> None:
    text = render(summarise(gathered.own), "md")
    assert len(re.findall(r"\| llama\.cpp \| p512 n128 d(?:0|8192) \|.*\| skipped \|", text)) == 2
    assert text.count(f"llama.cpp: skipped: {NO_ROOM}") == 1
    counts = summarise(gathered.own)[["n_ok", "n_failed", "n_skipped"]].to_numpy().tolist()
    assert counts == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]


def test_nothing_but_skipped_cases_is_no_failure(write_rows: Write, skipped: Row) -> None:
    gathered = gather([write_rows(skipped())])
    (sentence,) = answer(gathered, summarise(gathered.own), words("en"))
    assert sentence.startswith("Every case of a suite was skipped (1 in all)")


def test_what_was_measured_when_the_run_was_resumed_is_not_told_of(
    write_rows: Write, make_row: Row, skipped: Row
) -> None:
    """Its number of layers off the host was a guess before, and found by loading."""

    def cells(layers: int, run_id: str) -> dict[str, Any]:
        return {"engine_settings": {"asked": {"weights": "q4_k_m", "n_gpu_layers": layers}}, "run_id": run_id}

    model = {"model": "llama-3.1-70b", "weight_format": "q4_k_m", "backend": "llama.cpp"}
    found = gather(
        [
            write_rows(
                skipped(**cells(49, "a")),
                skipped(**cells(49, "a"), n_depth=8192),
                skipped(**cells(49, "b")),
                make_row(**model, **cells(50, "a")),
            )
        ]
    )
    assert skipped_rows(found.own)[["run_id", "n_depth"]].to_numpy().tolist() == [["a", 8192], ["b", 0]]
    doubts = find_doubts(found)
    assert doubts.loc[doubts["kind"] == "skipped", "n_rows"].tolist() == [2]
    assert words("en")["answer.skipped"].format(n=2) in answer(found, summarise(found.own), words("en"))
    assert "Cases of a suite that were skipped, 2:" in show(found, words("en"), width=200, blocks=False)
    rows = gather([write_rows(make_row())]).own
    assert skipped_rows(rows).empty


def test_a_comparison_says_so(gathered: Gathered) -> None:
    rows = gathered.own.assign(side=[0, 0, 1])
    found = failures(rows)
    assert found["why"].tolist() == [f"skipped: {NO_ROOM}", f"skipped: {NO_ROOM}"]
    alone = found.iloc[:1].drop(columns="status").assign(side=1, why="no counterpart")
    assert name_failed(alone, found)["why"].tolist() == ["its counterpart was skipped"]
