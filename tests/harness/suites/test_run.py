"""Suites that are really run, on a small model: a row for every case, nothing repeated, room made on the disk."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import harness
import results.read
from harness import estimate
from harness.experiments.fit import with_layers
from harness.models import cache
from harness.models.presets import PRESETS
from harness.plan import make_plan
from harness.progress import Reporter
from harness.rows import Row
from harness.suites.catalog import Entry, Suite
from harness.suites.plan import Part, SuitePlan
from harness.suites.run import _made
from harness.workload import Case
from results.read import read

pytestmark = pytest.mark.usefixtures("known_bandwidth")
SHORT, LONG = Case(0, 16, 8), Case(100, 16, 8)
TINY = Suite("tiny", 3, (Entry("gpt2-mini", "bf16", (SHORT, LONG)), Entry("gpt2-mini", "4bit", (SHORT,))), 1, 2)


@pytest.fixture(autouse=True)
def _fast_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_SIMULATED", json.dumps({"ttft_s": 0.001, "itl_s": 0.0001}))


class Recorder(Reporter):
    """Counts rows; may stop the run after some."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.rows: list[Row] = []
        self._stop_after = stop_after

    def row(self, row: Row) -> None:
        self.rows.append(row)
        if len(self.rows) == self._stop_after:
            raise KeyboardInterrupt


def _plan(output: Path, suite: Suite = TINY, **options: object) -> SuitePlan:
    asked = {"backends": "simulated", "machine": "here", "output": output} | options
    return harness.plan_suite(suite, harness.Options(**asked))


def _outcomes(rows: pd.DataFrame) -> dict[tuple[str, int, str], int]:
    return dict(Counter(zip(rows["weight_format"], rows["n_depth"], rows["status"], strict=True)))


def test_every_case_has_a_row_and_resume_repeats_none(tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    recorder = Recorder(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        harness.run_suite(_plan(output), lambda: recorder)
    assert len(read(output)) == 3

    rows = harness.run_suite(_plan(output, resume=True), Reporter)
    expected = {("bf16", 0, "ok"): 2, ("bf16", 100, "ok"): 2, ("4bit", 0, "skipped"): 1}
    assert _outcomes(rows) == expected
    assert set(rows["suite"]) == {"tiny-3"}
    assert rows["run_id"].nunique() == 1
    assert "has no 4bit weights" in rows.loc[rows["status"] == "skipped", "error"].iloc[0]
    assert _outcomes(read(output)) == expected

    again = harness.run_suite(_plan(output, resume=True), Reporter)
    assert again["row_id"].tolist() == rows["row_id"].tolist()
    assert len(read(output)) == 5, "nothing is written twice, not even what was skipped"

    other = harness.run_suite(_plan(output), Reporter)
    assert set(other["run_id"]).isdisjoint(rows["run_id"])
    assert len(read(output)) == 10


def test_rows_of_other_weights_are_not_those_to_resume(tmp_path: Path) -> None:
    """As after an update that synthesises otherwise."""
    output = tmp_path / "out.csv"
    rows = harness.run_suite(_plan(output), Reporter)
    (now,) = set(rows.loc[rows["status"] == "ok", "weights_id"])
    output.write_text(output.read_text(encoding="utf-8").replace(now, "f" * len(now)), encoding="utf-8")
    plan = _plan(output, resume=True)
    assert plan.parts[0].measured == ()
    assert [plan.parts[0].plan.cases_of(work) for work in plan.parts[0].plan.works] == [(SHORT, LONG)]
    again = harness.run_suite(plan, Reporter)
    assert _outcomes(again) == _outcomes(rows)
    assert set(again.loc[again["status"] == "ok", "weights_id"]) == {now}


def test_the_file_is_read_back_once_however_many_entries_a_suite_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = tuple(Entry("gpt2-mini", weights, (SHORT,)) for weights in ("bf16", "f16", "f32"))
    suite, output = Suite("three", 1, entries, 1, 1), tmp_path / "out.csv"
    opened: list[Path] = []

    def counted(path: Path, load: Callable[[Path], Any] = results.read.load) -> Any:
        opened.append(path)
        return load(path)

    monkeypatch.setattr(results.read, "load", counted)
    plan = _plan(output, suite)
    assert opened == []
    rows = harness.run_suite(plan, Reporter)
    assert _outcomes(rows) == {("bf16", 0, "ok"): 1, ("f16", 0, "ok"): 1, ("f32", 0, "ok"): 1}
    assert opened == [output]

    again = _plan(output, suite, repetitions=2, resume=True)
    opened.clear()
    assert len(harness.run_suite(again, Reporter)) == 6
    assert opened == [output] * 2, "what there was before, and what there is now"


def test_rows_of_the_same_cases_by_hand_are_not_the_suites(tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    asked = harness.Options(
        models="gpt2-mini", backends="simulated", n_prompt=16, n_gen=8, launches=1, repetitions=2, machine="here",
        output=output, resume=True,
    )  # fmt: skip
    harness.run(make_plan(asked), Reporter())
    rows = harness.run_suite(_plan(output, resume=True), Reporter)
    assert _outcomes(rows)["bf16", 0, "ok"] == 2
    assert len(read(output)) == 7
    harness.run(make_plan(asked), Reporter())
    assert len(read(output)) == 7, "nor the other way round"


def test_no_time_left_is_told_in_a_row_and_made_good_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.csv"
    plan = _plan(output)
    monkeypatch.setenv("TOKENROOF_SIMULATED", json.dumps({"ttft_s": 0.001, "itl_s": 0.5}))
    late = [replace(part, plan=replace(part.plan, max_time_s=6.0)) for part in plan.parts]
    rows = harness.run_suite(replace(plan, parts=tuple(late)), Reporter)
    assert set(rows["n_depth"]) == {0, 100}
    assert rows.loc[rows["n_depth"] == 100, ["status", "error"]].to_numpy().tolist() == [
        ["skipped", "--max-time was over before it"]
    ]
    monkeypatch.setenv("TOKENROOF_SIMULATED", json.dumps({"ttft_s": 0.001, "itl_s": 0.0001}))
    rows = harness.run_suite(_plan(output, resume=True), Reporter)
    assert _outcomes(rows) == {("bf16", 0, "ok"): 2, ("bf16", 100, "ok"): 2, ("4bit", 0, "skipped"): 1}


def test_a_time_limit_holds_for_what_a_resumed_run_still_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too short for both cases by the estimate, and long enough for either."""
    slow = estimate.Rates(bytes_s=1e9, flops_s=1e10)  # always as much, so that two plans estimate alike
    monkeypatch.setattr(estimate, "host_rates", lambda: slow)
    output = tmp_path / "out.csv"
    limit = {"max_time_s": 0.99 * _plan(output).seconds}
    rows = harness.run_suite(_plan(output, **limit), Reporter)
    assert _outcomes(rows) == {("bf16", 0, "ok"): 2, ("bf16", 100, "skipped"): 1, ("4bit", 0, "skipped"): 1}
    assert "and --max-time leaves" in rows.loc[rows["n_depth"] == 100, "error"].iloc[0]
    more = harness.run_suite(_plan(output, **limit, resume=True), Reporter)
    assert _outcomes(more) == {("bf16", 0, "ok"): 2, ("bf16", 100, "ok"): 2, ("4bit", 0, "skipped"): 1}
    assert set(rows.loc[rows["status"] == "ok", "row_id"]) < set(more["row_id"])


def test_what_was_measured_is_not_skipped_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though by now neither the memory nor the disk would do."""
    output = tmp_path / "out.csv"
    rows = harness.run_suite(_plan(output), Reporter)
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=0, total=10**9))
    again = _plan(output, resume=True)
    assert again.seconds == 0
    assert harness.run_suite(again, Reporter)["row_id"].tolist() == rows["row_id"].tolist()
    fresh = _plan(output)
    assert {each.case for each in fresh.parts[0].skipped} == {SHORT, LONG}


def test_room_is_made_of_what_earlier_entries_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that holds one checkpoint at a time."""
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))
    models = tmp_path / "cache" / "models"
    mine = models / "mine.gguf"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"of another day")
    room = 60_000_000  # gpt2-mini takes 49.4 MB

    def usage(_: object) -> SimpleNamespace:
        return SimpleNamespace(free=room - sum(each.n_bytes for each in cache.list_cached()))

    monkeypatch.setattr("shutil.disk_usage", usage)
    monkeypatch.setitem(PRESETS, "gpt2-other", {**PRESETS["gpt2-mini"], "layer_norm_epsilon": 1e-6})
    suite = Suite("two", 1, (Entry("gpt2-mini", "bf16", (SHORT,)), Entry("gpt2-other", "bf16", (SHORT,))), 1, 1)
    rows = harness.run_suite(_plan(tmp_path / "out.csv", suite), Reporter)
    assert rows[["model", "status"]].to_numpy().tolist() == [["gpt2-mini", "ok"], ["gpt2-other", "ok"]]
    kept = {each.path.name.rpartition("-")[0] or each.path.name for each in cache.list_cached()}
    assert kept == {"gpt2-other", "mine.gguf"}, "what was there before stays"


def test_a_model_that_cannot_be_made_costs_its_engine_alone(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk has room for the checkpoint, which torch reads, and not for llama.cpp's file of the same model."""
    engines = {"backends": ("torch", "llama.cpp"), "n_threads": (1,), "repetitions": 1}
    plan = _plan(tmp_path / "out.csv", Suite("one", 1, (Entry("gpt2-mini", "bf16", (SHORT,)),), 1, 1), **engines)
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))
    shutil.copytree(model_cache / "bandwidth", tmp_path / "cache" / "bandwidth")

    def usage(_: object) -> SimpleNamespace:
        return SimpleNamespace(free=60_000_000 - sum(each.n_bytes for each in cache.list_cached()))

    monkeypatch.setattr("shutil.disk_usage", usage)
    rows = harness.run_suite(plan, Reporter)
    assert dict(zip(rows["backend"], rows["status"], strict=True)) == {"torch": "ok", "llama.cpp": "failed"}
    assert "49.4 MB of disk" in rows.loc[rows["status"] == "failed", "error"].iloc[0]


def test_a_model_that_cannot_be_made_costs_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(tmp_path / "out.csv")
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**6))
    rows = harness.run_suite(plan, Reporter)
    assert _outcomes(rows) == {("bf16", 0, "failed"): 1, ("bf16", 100, "failed"): 1, ("4bit", 0, "skipped"): 1}
    assert "49.4 MB of disk" in rows["error"].iloc[0]


def test_real_engines_run_what_they_have(tmp_path: Path) -> None:
    plan = _plan(tmp_path / "out.csv", backends=("torch", "llama.cpp"), n_threads=(1,), repetitions=1)
    rows = harness.run_suite(plan, Reporter).set_index(["backend", "weight_format", "n_depth"])
    assert len(rows) == 6, "torch may have four bits or not; it has a row"
    outcomes = rows["status"].to_dict()
    for case in (
        ("torch", "bf16", 0),
        ("llama.cpp", "bf16", 0),
        ("llama.cpp", "bf16", 100),
        ("llama.cpp", "q4_k_m", 0),
    ):
        assert outcomes[case] == "ok", rows.loc[case, "error"]
    assert rows.loc[("llama.cpp", "bf16", 0), "verified"] == "yes"
    assert 4 < rows.loc[("llama.cpp", "q4_k_m", 0), "weight_bits"] < 9


def test_the_layers_that_really_fit_take_the_place_of_the_guess(small_tier: str, tmp_path: Path) -> None:
    """A server with 700 MB, and a case of which each layer's KV cache takes 403 MB: see the tests of `fit`."""
    case = Case(2**18 - 8, 4, 4)
    options = harness.Options(
        models="gpt2-mini", cases=(SHORT,), backends="llama.cpp", n_gpu_layers=4, rpc=(small_tier,), n_threads=1,
        n_ubatch=32, output=tmp_path / "rows.csv",
    )  # fmt: skip
    plan = make_plan(options)
    (guess,) = plan.works
    part = Part(TINY.entries[0], replace(plan, cases=(SHORT, case), left_out=frozenset({(guess, SHORT)})), (), (guess,))
    assert _made(part, guess, Reporter()) == with_layers(guess, 2)
    assert _made(replace(part, guessed=()), guess, Reporter()) == guess


def test_the_command_line_shows_the_plan_and_refuses_other_work(tmp_path: Path, command: Callable[..., Any]) -> None:
    said = partial(command, "run", cwd=tmp_path)

    shown = said("--suite", "standard", "--dry-run", "--backend", "simulated", "--machine", "here", "-r", "2")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("suite     standard-1\nmachine   here: ")
    assert "skip      llama-3.1-70b 4bit on simulated: p512 n128 d0,8192,32768: it has no 4bit weights" in shown.stdout
    assert "× 1 launch × 2 repetitions" in shown.stdout
    assert list(tmp_path.iterdir()) == []

    for flags, told in (
        (("-p", "512", "-d", "0", "-w", "bf16"), "-w, -p, -d"),
        (("-m", "gpt2-mini", "--batch", "1"), "-m, -B"),
        (("--kv-cache", "on", "--seed", "1"), "--kv-cache, --seed"),
    ):
        refused = said("--suite", "quick", *flags)
        assert refused.returncode == 2
        assert f"--suite quick is a fixed list of work, to which {told} cannot be added;" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert said("--suite", "huge").stderr == "tokenroof: --suite huge: is none of quick, standard, full\n"
