"""`tokenroof serve-tier`: it serves, says what, ends when told to, and refuses in one line."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.tiers.endpoints import answers

TOKENROOF = Path(sys.executable).with_name("tokenroof")


@pytest.fixture
def refused(command: Callable[..., Any]) -> Callable[..., str]:
    """What is said where a tier cannot be served."""

    def serve(*flags: str) -> str:
        result = command("serve-tier", *flags)
        assert result.returncode == 2
        assert result.stdout == ""
        *warnings, line = result.stderr.splitlines()
        assert len(warnings) <= 1
        return str(line)

    return serve


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(serving: Any, ending: signal.Signals) -> None:
    with serving() as (endpoint, process):
        assert answers(endpoint)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert workers
        process.send_signal(ending)
        _, words = process.communicate(timeout=30)
        assert process.returncode == 0
        assert words == "stopped serving\n"
        assert not answers(endpoint)
        assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)


def test_a_taken_port_is_refused(refused: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        assert refused("--bind", endpoint) == f"tokenroof: cannot listen at {endpoint}: somebody does already"


@pytest.mark.parametrize("bind", ["50052", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:port"])
def test_what_is_no_address_is_refused(bind: str, refused: Callable[..., str]) -> None:
    assert "HOST:PORT" in refused("--bind", bind)


def test_an_address_of_another_machine_is_refused(refused: Callable[..., str]) -> None:
    line = refused("--bind", "192.0.2.1:50052")  # reserved for documentation, so nobody has it
    assert line.startswith("tokenroof: cannot listen at 192.0.2.1:50052: ")


def test_a_device_that_is_not_there_is_refused(refused: Callable[..., str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert "no device 'CUDA7'" in refused("--bind", f"127.0.0.1:{port}", "--device", "CUDA7")


def test_an_address_that_others_reach_is_warned_of(serving: Any) -> None:
    result = subprocess.run(
        [TOKENROOF, "serve-tier", "--bind", "192.0.2.1:50052"], capture_output=True, text=True, check=False, timeout=60
    )
    assert "WARNING: whoever reaches 192.0.2.1:50052" in result.stderr
    assert "no authentication" in result.stderr
    with serving() as (_, process):
        process.send_signal(signal.SIGINT)
        assert "WARNING" not in process.communicate(timeout=30)[1]
