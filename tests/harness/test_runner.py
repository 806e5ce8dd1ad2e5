import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

import harness
from harness.machine.conditions import governor, heat
from harness.progress import Reporter
from harness.rows import Row
from harness.workload import sha256, token_stream
from results.read import read
from results.samples import read_samples

Simulate = Callable[..., None]


class Recorder(Reporter):
    """Keeps what it is told; may act on a row."""

    def __init__(self, on_row: Callable[[Row], None] = lambda _: None) -> None:
        self.notes: list[str] = []
        self.left_s: list[float] = []
        self._on_row = on_row

    def note(self, text: str) -> None:
        self.notes.append(text)

    def doing(self, what: str, done_s: float, left_s: float) -> None:
        self.left_s.append(left_s)

    def row(self, row: Row) -> None:
        self._on_row(row)


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Simulate:
    """Set the simulated engine's options for the workers of this test."""

    def options(**values: object) -> None:
        monkeypatch.setenv("TOKENROOF_SIMULATED", json.dumps({"ttft_s": 0.004, "itl_s": 0.0005, **values}))

    options()
    return options


def _plan(output: Path, **options: object) -> harness.Plan:
    defaults = {
        "models": ("gpt2-mini",), "backends": ("simulated",), "n_prompt": (16,), "n_gen": (8,), "launches": 2,
        "repetitions": 2, "output": output,
    }  # fmt: skip
    return harness.make_plan(harness.Options(**(defaults | options)))


@pytest.mark.usefixtures("simulate")
def test_a_repetition_is_a_row_with_its_raw_intervals(tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    recorder = Recorder()
    rows = harness.run(_plan(output, n_depth=(0, 20), batch=(2,)), recorder)

    assert (rows["status"] == "ok").all()
    assert rows.groupby(["launch", "n_depth"])["repetition"].apply(list).tolist() == [[1, 2]] * 4
    assert set(rows["launch"]) == {1, 2}
    assert rows["row_id"].tolist() == read(output)["row_id"].tolist()
    samples = read_samples(output).set_index("row_id").loc[rows["row_id"]]
    for row, sample in zip(rows.itertuples(), samples.itertuples(), strict=True):
        assert len(sample.itl_s) == 7
        assert row.decode_tok_s == pytest.approx(2 * 7 / sum(sample.itl_s))
        assert row.prefill_tok_s == pytest.approx(2 * 16 / sample.ttft_s)
        assert row.itl_max_s == max(sample.itl_s)
        ids = np.array(sample.argmax, dtype=np.int32).reshape(8, 2).T
        assert row.argmax_sha256 == sha256(ids)
        assert row.tokens_sha256 == sha256(token_stream(row.n_depth + 24, 2, 512, 1))
        assert row.decode_start == row.n_depth + 16
        assert row.kv_allocated_tokens == row.n_depth + 24
    assert recorder.left_s[0] > recorder.left_s[-1] >= 0


@pytest.mark.usefixtures("simulate")
@pytest.mark.parametrize(("n_prompt", "n_gen"), [(0, 4), (4, 0), (4, 1)])
def test_what_a_case_does_not_have_is_empty_with_a_reason(tmp_path: Path, n_prompt: int, n_gen: int) -> None:
    output = tmp_path / "out.csv"
    plan = _plan(output, n_prompt=(n_prompt,), n_gen=(n_gen,), repetitions=1, launches=1)
    row = harness.run(plan, Reporter()).iloc[0]
    unavailable = json.loads(row["unavailable"])
    for column in ("ttft_s", "prefill_tok_s", "decode_tok_s", "tpot_s", "itl_p50_s", "peak_device_bytes"):
        assert row.isna()[column] == (column in unavailable), column
    assert row.isna()["decode_start"] == (n_gen == 0)


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of an Intel desktop as its kernel shows them, for the parent process."""
    files = {
        "hwmon/hwmon0/name": "coretemp",
        "hwmon/hwmon0/temp1_input": "67000",
        "cpu/cpu0/thermal_throttle/package_throttle_count": "4",
        "cpufreq/policy0/scaling_governor": "powersave",
        "cpufreq/policy0/scaling_driver": "acpi-cpufreq",
    }
    for name, value in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    monkeypatch.setattr(heat, "_SENSORS", tmp_path / "hwmon")
    monkeypatch.setattr(heat, "_CORES", tmp_path / "cpu")
    monkeypatch.setattr(governor, "_POLICIES", tmp_path / "cpufreq")
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="its files are Linux's")
def test_each_row_says_how_the_machine_fared_meanwhile(tmp_path: Path, simulate: Simulate, desktop: Path) -> None:
    simulate(ttft_s=0.05, itl_s=0.03)

    def heat_up(_: Row) -> None:
        (desktop / "hwmon/hwmon0/temp1_input").write_text("99000\n")
        (desktop / "cpu/cpu0/thermal_throttle/package_throttle_count").write_text("5\n")

    recorder = Recorder(heat_up)
    rows = harness.run(_plan(tmp_path / "out.csv", launches=1), recorder)
    assert rows["temp_c_max"].tolist() == [67.0, 99.0]
    assert rows["throttled"].tolist() == ["no", "thermal"]
    assert rows["cpu_busy_other_pct"].between(0, 100).all()
    for row in rows.itertuples():
        unavailable = json.loads(str(row.unavailable))
        assert not {"temp_c_max", "throttled", "cpu_busy_other_pct"} & unavailable.keys()
        assert np.isnan(float(str(row.energy_j))) == ("energy_j" in unavailable)
    assert any("governor is powersave" in note for note in recorder.notes)


def test_an_engines_error_costs_its_case_and_no_other(tmp_path: Path, simulate: Simulate) -> None:
    simulate(fault="oom", fault_at="prefill", fault_context=32 + 8)
    rows = harness.run(_plan(tmp_path / "out.csv", n_prompt=(16, 32, 48)), Reporter())
    assert rows["status"].tolist().count("failed") == 1, "it is not tried again in the second launch"
    failed = rows[rows["status"] == "failed"].iloc[0]
    assert failed["n_prompt"] == 32
    assert failed["error"] == "out of simulated memory"
    assert (rows[rows["status"] == "ok"].groupby("n_prompt").size() == 4).all()


def test_a_hang_costs_its_case(tmp_path: Path, simulate: Simulate) -> None:
    simulate(fault="hang", fault_context=32 + 8)
    rows = harness.run(_plan(tmp_path / "out.csv", n_prompt=(16, 32, 48), launches=1, timeout_s=3.0), Reporter())
    assert rows["status"].tolist() == ["ok", "ok", "failed", "ok", "ok"]
    assert "--timeout" in rows["error"].iloc[2]


def test_a_failed_load_fails_every_case_once(tmp_path: Path, simulate: Simulate) -> None:
    simulate(fault="error", fault_at="load")
    rows = harness.run(_plan(tmp_path / "out.csv", n_prompt=(16, 32)), Reporter())
    assert rows["status"].tolist() == ["failed", "failed"]
    assert rows["n_prompt"].tolist() == [16, 32]


def test_an_engine_that_cannot_tell_what_it_holds_fails_its_cases_and_not_the_worker(
    tmp_path: Path, simulate: Simulate
) -> None:
    simulate(fault="error", fault_at="held")
    rows = harness.run(_plan(tmp_path / "out.csv", n_prompt=(16, 32)), Reporter())
    assert rows["status"].tolist() == ["failed", "failed"]
    assert set(rows["error"]) == {"a simulated error"}


def test_a_crash_is_tried_once_more_with_the_engines_fallback(tmp_path: Path, simulate: Simulate) -> None:
    simulate(fault="crash", fault_context=32 + 8)
    recorder = Recorder()
    rows = harness.run(_plan(tmp_path / "out.csv", n_prompt=(16, 32), launches=1), recorder)
    assert rows["status"].tolist() == ["ok"] * 4
    used = [json.loads(settings)["use_extra_bufts"] for settings in rows["engine_settings"]]
    assert used == [True, True, False, False]
    assert rows["launch"].tolist() == [1, 1, 2, 2], "another process is another launch"
    assert any("use_extra_bufts" in note for note in recorder.notes)


@pytest.mark.usefixtures("simulate")
def test_a_killed_worker_costs_its_case(tmp_path: Path) -> None:
    def kill_worker(row: Row) -> None:
        if row["n_prompt"] == 32 and row["repetition"] == 1 and row["status"] == "ok":
            for child in psutil.Process().children(recursive=True):
                os.kill(child.pid, signal.SIGKILL)

    rows = harness.run(
        _plan(tmp_path / "out.csv", n_prompt=(16, 32, 48), launches=1, repetitions=40), Recorder(kill_worker)
    )
    failed = rows[rows["status"] == "failed"]
    assert failed["n_prompt"].tolist() == [32]
    assert "memory" in failed["error"].iloc[0]
    assert (rows[rows["status"] == "ok"].groupby("n_prompt").size().loc[[16, 48]] == 40).all()


@pytest.mark.usefixtures("simulate")
def test_an_interrupted_run_is_resumed_and_never_repeated(tmp_path: Path) -> None:
    output = tmp_path / "out.csv"

    def stop(row: Row) -> None:
        if row["n_depth"] == 20 and row["repetition"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        harness.run(_plan(output, n_depth=(0, 20)), Recorder(stop))
    before = read(output)
    assert len(before) == 3
    assert len(read_samples(output)) == 3

    harness.run(_plan(output, n_depth=(0, 20), resume=True), Reporter())
    after = read(output)
    assert after.iloc[:3].equals(before), "what was measured stays as it was"
    assert after["run_id"].nunique() == 1
    assert after.groupby("n_depth").size().tolist() == [4, 4]
    assert not after.duplicated(["n_depth", "launch", "repetition"]).any()
    assert set(read_samples(output)["row_id"]) == set(after["row_id"])

    recorder = Recorder()
    assert len(harness.run(_plan(output, n_depth=(0, 20), resume=True), recorder)) == 8
    assert len(read(output)) == 8
    assert any("nothing is missing" in note for note in recorder.notes)
    harness.run(_plan(output, n_depth=(0, 20), resume=True, seed=2), Reporter())
    assert len(read(output)) == 16, "another seed is other work"


def test_resume_tries_again_what_failed(tmp_path: Path, simulate: Simulate) -> None:
    output = tmp_path / "out.csv"
    simulate(fault="error", fault_context=32 + 8)
    harness.run(_plan(output, n_prompt=(16, 32)), Reporter())
    simulate()
    harness.run(_plan(output, n_prompt=(16, 32), resume=True), Reporter())
    assert read(output).groupby(["n_prompt", "status"]).size().to_dict() == {
        (16, "ok"): 4, (32, "failed"): 1, (32, "ok"): 4,
    }  # fmt: skip


def test_max_time_stops_with_what_was_measured(tmp_path: Path, simulate: Simulate) -> None:
    simulate(itl_s=0.05)
    recorder = Recorder()
    rows = harness.run(_plan(tmp_path / "out.csv", repetitions=100, max_time_s=4.0), recorder)
    assert 0 < len(rows) < 100
    assert any("--resume" in note for note in recorder.notes)
