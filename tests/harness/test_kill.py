"""kill -9, at any moment: what was written survives, and --resume adds what is missing."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from results.read import read
from results.samples import read_samples

TOKENROOF = Path(sys.executable).with_name("tokenroof")


def _start(output: Path, *more: str) -> subprocess.Popen[bytes]:
    case = ["-m", "gpt2-mini", "--backend", "simulated", "-p", "16,24", "-n", "8", "-r", "10", "--launches", "2"]
    command = [TOKENROOF, "run", *case, "-o", output, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _wait_for_rows(output: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while not output.exists() or output.read_bytes().count(b"\n") <= count:
        assert time.monotonic() < deadline, "no rows came"
        time.sleep(0.01)


def _interrupted(output: Path, n_rows: int) -> bytes:
    """What a run says that is sent Ctrl-C after so many rows."""
    with _start(output) as run:
        _wait_for_rows(output, n_rows)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    return errors


@pytest.fixture(scope="module")
def killed(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed after some rows."""
    output = tmp_path_factory.mktemp("killed") / "out.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROOF_CACHE", str(model_cache))
        patch.setenv("TOKENROOF_SIMULATED", json.dumps({"ttft_s": 0.01, "itl_s": 0.002}))
        with _start(output) as run:
            _wait_for_rows(output, 13)
            workers = psutil.Process(run.pid).children()
            run.kill()
    psutil.wait_procs(workers, timeout=30)
    assert not any(worker.is_running() for worker in workers), "a worker outlived its harness"
    return output.parent


@pytest.mark.parametrize("torn", [b"", b"1,abc,2,2026", b'1,"an open quote, and a com'], ids=["whole", "cut", "quoted"])
def test_a_killed_harness_leaves_a_file_that_resume_completes(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bytes
) -> None:
    monkeypatch.setenv("TOKENROOF_SIMULATED", json.dumps({"ttft_s": 0.01, "itl_s": 0.002}))
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    output = tmp_path / "out.csv"
    written = output.read_bytes()
    rows_before = written[: written.rindex(b"\n") + 1]
    output.write_bytes(rows_before + torn)
    with _start(output, "--resume") as run:
        _, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
    assert output.read_bytes().startswith(rows_before), "complete rows are never touched"
    rows = read(output)
    assert rows.groupby("n_prompt").size().to_dict() == {16: 20, 24: 20}
    assert (rows["status"] == "ok").all()
    assert not rows.duplicated(["n_prompt", "launch", "repetition"]).any()
    assert set(rows["row_id"]) <= set(read_samples(output)["row_id"]), "no row without its intervals"


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_SIMULATED", json.dumps({"ttft_s": 0.01, "itl_s": 0.002}))
    output = tmp_path / "out.csv"
    errors = _interrupted(output, 3)
    assert b"--resume" in errors
    assert b"Traceback" not in errors
    assert len(read(output)) >= 3


def test_ctrl_c_before_the_first_row_does_not_speak_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_SIMULATED", json.dumps({"ttft_s": 60}))
    output = tmp_path / "out.csv"
    errors = _interrupted(output, 0)
    assert errors.splitlines()[-1] == b"tokenroof: interrupted before anything was measured"
