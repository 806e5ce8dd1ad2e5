import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from backends.base import LoadRequest
from harness.process import Worker, WorkerDiedError


def _job(repetitions: int = 2, **simulated: object) -> dict[str, object]:
    request = asdict(LoadRequest(Path("none"), None, engine_options={"ttft_s": 0.0, "itl_s": 0.0, **simulated}))
    case = {"n_depth": 0, "n_prompt": 8, "n_gen": 8, "batch": 1}
    return {
        "task": "run",
        "backend": "simulated",
        "request": {**request, "artifact": "none"},
        "demand": None,
        "allow_partial": False,
        "window": None,
        "is_mixture": False,
        "seed": 1,
        "prompt_ids": None,
        "cases": [{"case": case, "repetitions": repetitions}],
    }


def _names(job: dict[str, object], silence_s: float = 60) -> list[str]:
    with Worker(job) as worker:
        return [event["event"] for event in worker.events(silence_s)]


def test_a_job_runs_from_load_to_done() -> None:
    assert _names(_job()) == ["loading", "loaded", "probe", "case", "warm", "repetition", "repetition"]


@pytest.mark.parametrize("fault", ["error", "oom"])
def test_an_engines_error_costs_the_case(fault: str) -> None:
    with Worker(_job(fault=fault, fault_context=16)) as worker:
        *_, last = worker.events(60)
    assert last["event"] == "case_failed"
    assert "simulated" in last["error"]


def test_a_crash_is_told_from_a_kill_by_its_reason() -> None:
    with pytest.raises(WorkerDiedError, match="crashed") as crash:
        _names(_job(fault="crash", fault_context=16))
    assert crash.value.crashed

    with Worker(_job(repetitions=10**6)) as worker, pytest.raises(WorkerDiedError, match="want of memory") as death:
        for event in worker.events(60):
            if event["event"] == "repetition":
                os.kill(worker.pid, signal.SIGKILL)
    assert not death.value.crashed


def test_a_hang_ends_with_advice() -> None:
    with pytest.raises(WorkerDiedError, match="--timeout"):
        _names(_job(fault="hang", fault_context=16), silence_s=3)


def test_a_worker_of_mlx_does_without_torch(tmp_path: Path) -> None:
    """Of a model that is not there; by then all that it needs is imported, and Python tells what."""
    command = [sys.executable, "-X", "importtime", "-P", "-m", "harness.worker"]
    pipe = subprocess.PIPE
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(_job() | {"backend": "mlx"}).encode() + b"\n")
        worker.stdin.flush()
        assert [json.loads(line)["event"] for line in worker.stdout] == ["loading", "failed", "done"]
    imported = {line.rpartition("|")[2].strip() for line in (tmp_path / "log").read_text().splitlines()}
    assert {"mlx.core", "mlx_lm", "transformers"} <= imported
    assert "torch" not in imported


def test_leaving_early_ends_the_worker() -> None:
    with Worker(_job(repetitions=10**6)) as worker:
        next(worker.events(60))
        process = psutil.Process(worker.pid)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_worker_whose_parent_was_killed_ends_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        f"from harness.process import Worker\nwith Worker({_job(repetitions=10**7)!r}) as worker:\n"
        "    for event in worker.events(60):\n        print(worker.pid, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    deadline = time.monotonic() + 30
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.1)


def test_what_an_engine_prints_does_not_spoil_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The simulated engine's own print, and one below Python's: both go to file descriptor 1.
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, os, time\n"
        "def chatter():\n    while True:\n        print('noise'); os.write(1, b'more noise\\n'); time.sleep(0.001)\n"
        "import builtins\n_open = os.dup\n"
        "def dup(fd):\n    result = _open(fd)\n    threading.Timer(0.2, chatter).start()\n    return result\n"
        "os.dup = dup\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Worker(_job(repetitions=200, ttft_s=0.002)) as worker:
        names = [event["event"] for event in worker.events(60)]
        assert names.count("repetition") == 200
