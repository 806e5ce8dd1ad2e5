"""Real servers on loopback, each beside the in-process backend of the same engine: the same work on the same model.

Their logs lie in pytest's temporary directories, which it keeps.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from results.read import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("known_bandwidth")
START_S = 120
CASES = ("-p", "48", "-n", "12", "-d", "0,64", "-r", "2")
IN_PROCESS = ("--device", "cpu", "-t", "1", "--launches", "1")


@dataclass(frozen=True)
class Server:
    """One that runs.

    Attributes:
        engine: the backend that has the same engine in process.
        model: what -m names; `served` what the server calls it.
        base_url, log: where it listens, and the file of what it prints.
        cache: tokenroof's, with this machine's bandwidth.
        command: `tokenroof`, run by this process.
    """

    engine: str
    model: Path
    served: str
    base_url: str
    log: Path
    cache: Path
    command: Callable[..., subprocess.CompletedProcess[str]]

    def run(self, output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        """`tokenroof run` against it."""
        endpoint = ("--backend", "openai", "--base-url", self.base_url, "--artifact", f"openai={self.served}")
        return self.tokenroof(output, "-m", str(self.model), *endpoint, *flags)

    def tokenroof(self, output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.command("run", *flags, "-o", output, TOKENROOF_CACHE=str(self.cache))


@contextmanager
def _listening(command: list[str | Path], port: int, log: Path):
    """The server's process, which answers at its port."""
    # Neither may look for a newer model, or for models in this user's cache.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(log.parent)}
    with log.open("w") as printed, subprocess.Popen(command, stdout=printed, stderr=printed, env=environment) as server:
        try:
            deadline = time.monotonic() + START_S
            while True:
                assert server.poll() is None, log.read_text()[-4000:]
                assert time.monotonic() < deadline, log.read_text()[-4000:]
                with socket.socket() as probe:
                    if not probe.connect_ex(("127.0.0.1", port)):
                        break
                time.sleep(0.1)
            yield server
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def llama_server(tiny_gguf, model_cache, command, tmp_path_factory):
    """llama-cpp-python's; two requests at once wait for each other in place of the first being cut off."""
    log, port = tmp_path_factory.mktemp("llama_cpp.server") / "log", _free_port()
    started = [sys.executable, "-m", "llama_cpp.server", "--model", tiny_gguf, "--port", str(port)]
    started += ["--n_ctx", "512", "--n_threads", "1", "--n_threads_batch", "1", "--interrupt_requests", "false"]
    with _listening([*started, "--model_alias", "tiny"], port, log):
        yield Server("llama.cpp", tiny_gguf, "tiny", f"http://127.0.0.1:{port}/v1", log, model_cache, command)


@pytest.fixture(scope="module")
def mlx_server(tiny_hf, model_cache, command, tmp_path_factory):
    """MLX's; the name "default_model" stands for the one that it was started with."""
    log, port = tmp_path_factory.mktemp("mlx_lm.server") / "log", _free_port()
    started = [sys.executable, "-m", "mlx_lm", "server", "--model", tiny_hf, "--port", str(port)]
    with _listening(started, port, log):
        yield Server("mlx", tiny_hf, "default_model", f"http://127.0.0.1:{port}/v1", log, model_cache, command)


@pytest.fixture(scope="module", params=["llama_server", "mlx_server"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def rows(server, tmp_path_factory) -> pd.DataFrame:
    """Of the server and of its engine in process, one file."""
    output = tmp_path_factory.mktemp("rows") / "both.csv"
    served = server.run(output, *CASES)
    assert served.returncode == 0, f"{served.stderr}\n{server.log.read_text()[-4000:]}"
    in_process = server.tokenroof(output, "-m", str(server.model), "--backend", server.engine, *IN_PROCESS, *CASES)
    assert in_process.returncode == 0, in_process.stderr
    return read(output)


def _both(rows, server):
    return rows[rows["backend"] == "openai"], rows[rows["backend"] == server.engine]


def test_the_same_work_was_done(rows, server):
    served, in_process = _both(rows, server)
    assert len(served) == len(in_process) == 4
    assert (served["status"] == "ok").all(), served["error"].tolist()
    for column in ("decode_start", "n_gen", "batch"):
        assert sorted(served[column]) == sorted(in_process[column])


def test_the_model_is_known_as_well_as_in_process(rows, server):
    """What the ceiling is made of; the engine in process counted the tensors that it had loaded."""
    served, in_process = _both(rows, server)
    same = [
        "n_params",
        "weight_format",
        "weight_bytes",
        "architecture",
        "streamed_bytes_per_token",
        "kv_bytes_per_token",
        *("machine", "device_name", "device_memory_bytes"),  # or figures would show two devices
    ]
    for column in same:
        assert set(served[column]) == set(in_process[column]), column
    for start, one in served.groupby("decode_start"):
        assert set(one["kv_read_bytes"]) == set(in_process[in_process["decode_start"] == start]["kv_read_bytes"])


def test_rates_are_there_and_ttft_is_the_clients(rows, server):
    served, _ = _both(rows, server)
    for column in ("ttft_client_s", "decode_tok_s", "request_tok_s", "output_tok_s", "server_latency_s"):
        assert (served[column] > 0).all(), column
    assert served[["ttft_s", "prefill_tok_s"]].isna().all(axis=None)


def test_the_server_is_named_with_its_version(rows, server):
    served, _ = _both(rows, server)
    name = {"llama.cpp": "llama_cpp.server", "mlx": "mlx_lm.server"}[server.engine]
    assert served["backend_version"].str.contains(name).all(), served["backend_version"].unique()


def test_the_rows_hold_no_path(rows, server):
    """mlx_lm.server calls its model by the directory's whole path."""
    served, _ = _both(rows, server)
    text = served.to_csv()
    assert str(server.model.parent) not in text
    assert not re.search(r"/(tmp|home|root)/", text)


@pytest.mark.parametrize("server", ["llama_server"], indirect=True)
@pytest.mark.usefixtures("rows")
def test_llama_cpp_counts_the_same_tokens(server):
    """Its own log of each request: what it kept of the prompt before and what it computed, and the steps thereafter."""
    log = server.log.read_text()
    kept_and_computed = re.findall(r"generate: (\d+) prefix-match hit, remaining (\d+) prompt tokens", log)
    assert {48, 112} <= {int(kept) + int(computed) for kept, computed in kept_and_computed}
    assert max(int(kept) for kept, _ in kept_and_computed) <= 8, "each prompt is new"
    assert re.search(r"\n.* eval time = .*/ +11 runs", log)


def test_mlx_keeps_a_prefix_when_asked_to(mlx_server, tmp_path):
    output = tmp_path / "prefix.csv"
    result = mlx_server.run(output, "-p", "32", "-n", "4", "-d", "64", "--prefix-cache", "-r", "1")
    (row,) = read(output).to_dict("records")
    assert row["status"] == "ok", result.stderr
    assert row["kv_cache"] == "prefix"
    assert 64 <= row["kv_kept_tokens"] < 64 + 32


def test_llama_cpp_does_not_tell_what_it_kept(llama_server, tmp_path):
    """So small a model computes a prompt in no time: the row and the table leave it open."""
    output = tmp_path / "prefix.csv"
    result = llama_server.run(output, "-p", "32", "-n", "4", "-d", "64", "--prefix-cache", "-r", "1")
    (row,) = read(output).to_dict("records")
    assert row["status"] == "ok", result.stderr
    assert pd.isna(row["kv_kept_tokens"])
    assert "the server does not tell what it kept" in " ".join(result.stdout.split())


def test_two_streams_at_once(server, tmp_path):
    """MLX computes them together; llama_cpp.server one after the other, so they never both decode."""
    output = tmp_path / "two.csv"
    result = server.run(output, "-p", "48", "-n", "96", "-r", "1", "--concurrency", "2")
    (row,) = read(output).to_dict("records")
    assert row["status"] == "ok", result.stderr
    assert row["batch"] == 2
    assert row["request_tok_s"] > 0
    assert pd.isna(row["decode_tok_s"]) == (server.engine == "llama.cpp")


def test_a_model_that_it_does_not_serve_is_no_surprise(llama_server, tmp_path):
    """llama_cpp.server answers to any name: what it does serve is in the row's settings."""
    output = tmp_path / "other.csv"
    command = ("--backend", "openai", "--base-url", llama_server.base_url, "-m", "no-such-model")
    result = llama_server.tokenroof(output, *command, "-p", "16", "-n", "4", "-r", "1")
    (row,) = read(output).to_dict("records")
    assert row["status"] == "failed", result.stderr
    assert "tiny" in row["error"]
