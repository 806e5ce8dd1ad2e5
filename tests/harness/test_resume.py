"""What a file already holds of a plan: which of its rows count, and which run goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import harness
from harness import prepare
from harness.done import NOTHING, Done
from harness.progress import Reporter
from harness.resume import measured, missing, rows_of
from harness.rows import Row
from results.read import read
from results.schema import COLUMNS
from results.store import Store
from results.verify import verify

TOKENROOF = Path(sys.executable).with_name("tokenroof")
FAST = json.dumps({"ttft_s": 0.001, "itl_s": 0.0001})


@pytest.fixture(autouse=True)
def _fast_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_SIMULATED", FAST)


def _plan(output: Path, **options: object) -> harness.Plan:
    defaults = {
        "models": "gpt2-mini", "backends": "simulated", "n_prompt": 16, "n_gen": 8, "launches": 2, "repetitions": 2,
        "machine": "here", "output": output,
    }  # fmt: skip
    return harness.make_plan(harness.Options(**(defaults | options)))


@pytest.fixture(scope="module")
def finished(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> harness.Plan:
    """A plan of two launches of two repetitions, done; tests work on copies of its file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROOF_CACHE", str(model_cache))
        patch.setenv("TOKENROOF_SIMULATED", FAST)
        plan = _plan(tmp_path_factory.mktemp("resume") / "out.csv")
        harness.run(plan, Reporter())
        return plan


@pytest.fixture
def plan(finished: harness.Plan, tmp_path: Path) -> harness.Plan:
    return replace(finished, output=Path(shutil.copy(finished.output, tmp_path)))


def _measured(plan: harness.Plan) -> Done[str]:
    return measured(plan, prepare.artifacts(plan, Reporter()), read(plan.output))


def _missing(plan: harness.Plan, done: Done[str]) -> list[list[int]]:
    """The repetitions of each case in each launch that is due, of the plan's only work."""
    (work,) = plan.works
    return [list(due.values()) for due in missing(plan, work, done.rows, prepare.artifacts(plan, Reporter())[work])]


def test_rows_of_the_same_work_count(plan: harness.Plan) -> None:
    rows = read(plan.output)
    done = _measured(plan)
    assert done.run_id == rows["run_id"].iloc[0]
    assert done.last_launch == 2
    assert list(done.rows.values()) == [4]
    assert _missing(plan, done) == []


def test_rows_of_other_work_do_not(plan: harness.Plan) -> None:
    (work,) = plan.works
    (case,) = plan.cases
    others = {
        "machine": replace(plan, label="there"),
        "seed": replace(plan, seed=2),
        "case": replace(plan, cases=(replace(case, n_depth=16),)),
        "batch": replace(plan, cases=(replace(case, batch=2),)),
        "threads": replace(plan, works=(replace(work, settings=replace(work.settings, n_threads=77)),)),
        "weights": replace(plan, works=(replace(work, settings=replace(work.settings, weights="f32")),)),
        "engine": replace(plan, works=(replace(work, backend="torch"),)),
    }
    for what, other in others.items():
        assert _measured(other) == NOTHING, what
        assert _missing(other, NOTHING) == [[2], [2]], what
    assert _measured(replace(plan, launches=7, timeout_s=1.0)) != NOTHING, "how much and how long is no other work"


def test_an_output_without_rows_holds_nothing(plan: harness.Plan, tmp_path: Path) -> None:
    new = replace(plan, output=tmp_path / "new.csv", resume=True)
    Store(new.output)
    assert _measured(new) == NOTHING
    new.output.unlink()
    assert len(harness.run(new, Reporter())) == 4


def test_a_launch_that_was_cut_short_is_finished_first(plan: harness.Plan) -> None:
    done = _measured(plan)
    assert _missing(replace(plan, launches=2, repetitions=3), done) == [[2]]
    assert _missing(replace(plan, launches=3, repetitions=3), done) == [[2], [3]]
    assert _missing(replace(plan, launches=4, repetitions=2), done) == [[2], [2]]
    assert _missing(replace(plan, launches=1, repetitions=3), done) == [], "more than enough"


def test_each_case_has_its_own_count(plan: harness.Plan) -> None:
    (case,) = plan.cases
    both = replace(plan, cases=(case, replace(case, n_depth=16)), launches=3)
    assert _missing(both, _measured(both)) == [[2, 2], [2], [2]]
    assert _missing(both, NOTHING) == [[2, 2]] * 3


def test_failed_rows_are_due_again(plan: harness.Plan) -> None:
    lines = plan.output.read_text().splitlines(keepends=True)
    plan.output.write_text("".join([*lines[:2], *(line.replace('"ok"', '"failed"') for line in lines[2:])]))
    done = _measured(plan)
    assert list(done.rows.values()) == [1]
    assert _missing(plan, done) == [[1], [2]]


def test_the_last_run_that_did_some_of_the_work_goes_on(plan: harness.Plan) -> None:
    first = read(plan.output)["run_id"].iloc[0]
    harness.run(replace(plan, seed=2), Reporter())
    assert _measured(plan).run_id == first, "the run after it was another plan's"

    harness.run(replace(plan, launches=1, repetitions=1), Reporter())
    last = read(plan.output)["run_id"].iloc[-1]
    done = _measured(plan)
    assert done.run_id == last != first
    assert done.last_launch == 1
    assert _missing(plan, done) == [[1], [2]], "rows of an earlier run are not this run's"

    rows = harness.run(replace(plan, resume=True), Reporter())
    assert set(rows["run_id"]) == {last}
    assert len(rows) == 4
    assert not rows.duplicated(["launch", "repetition"]).any()


def test_rows_that_do_not_say_what_was_asked_are_no_rows_of_ours(plan: harness.Plan) -> None:
    """Such as those of another version: in the same file, for the same case."""
    plan.output.write_text(plan.output.read_text().replace('""asked""', '""other""'))
    assert _measured(plan) == NOTHING
    rows = harness.run(replace(plan, resume=True), Reporter())
    assert len(rows) == 4
    assert len(read(plan.output)) == 8


def test_the_rows_of_a_run_are_its_own(plan: harness.Plan) -> None:
    artifacts = prepare.artifacts(plan, Reporter())
    first = read(plan.output)["run_id"].iloc[0]
    harness.run(replace(plan, launches=1), Reporter())
    rows = verify(read(plan.output))
    assert len(rows) == 6
    assert len(rows_of(plan, artifacts, rows, first)) == 4
    assert len(rows_of(plan, artifacts, rows, rows["run_id"].iloc[-1])) == 2
    assert rows_of(plan, artifacts, rows, "no such run").empty


def test_a_failure_that_was_made_good_is_not_answered_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.csv"
    monkeypatch.setenv("TOKENROOF_SIMULATED", json.dumps({"fault": "error", "fault_context": 32 + 8, "ttft_s": 0.001}))
    rows = harness.run(_plan(output, n_prompt=(16, 32)), Reporter())
    assert Counter(rows["status"]) == {"ok": 4, "failed": 1}
    monkeypatch.setenv("TOKENROOF_SIMULATED", FAST)
    rows = harness.run(_plan(output, n_prompt=(16, 32), resume=True), Reporter())
    assert Counter(rows["status"]) == {"ok": 8}
    assert Counter(read(output)["status"]) == {"ok": 8, "failed": 1}, "the file forgets nothing"


def test_after_a_killed_worker_resume_completes_and_exits_with_0(tmp_path: Path) -> None:
    class KillsTheWorker(Reporter):
        def row(self, row: Row) -> None:
            if row["status"] == "ok":
                for child in psutil.Process().children(recursive=True):
                    os.kill(child.pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)

    output = tmp_path / "out.csv"
    rows = harness.run(_plan(output, launches=1, repetitions=40), KillsTheWorker())
    assert (rows["status"] == "failed").sum() == 1
    # The cheapest way of asking for the same work: the label is given, and the settings are the defaults.
    case = ["-m", "gpt2-mini", "--backend", "simulated", "-p", "16", "-n", "8", "--launches", "1", "-r", "40"]
    command = [TOKENROOF, "run", *case, "--machine", "here", "-o", output, "--resume"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    rows = read(output)
    assert Counter(rows["status"]) == {"ok": 40, "failed": 1}
    assert rows["run_id"].nunique() == 1


def test_a_row_without_settings_is_no_row_of_the_plan(tmp_path: Path) -> None:
    plan = _plan(tmp_path / "out.csv", resume=True)
    required = {column.name: 1 if column.kind == "int" else "x" for column in COLUMNS if column.required}
    Store(plan.output).append({**required, "row_id": "0123456789ab", "status": "ok", "machine": "here"})
    assert _measured(plan).run_id is None
