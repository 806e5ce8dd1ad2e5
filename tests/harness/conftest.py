from __future__ import annotations

import functools
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import cpuinfo
import psutil
import pytest

from backends.base import Session
from backends.registry import ENGINES
from harness import engine_choice, estimate, probe
from harness.cli.main import main
from harness.machine.bandwidth import measured as bandwidth
from harness.machine.hardware import inspect

TOKENROOF = Path(sys.executable).with_name("tokenroof")

Probed = Callable[[str, Session], dict[str, Any]]
Command = Callable[..., "subprocess.CompletedProcess[str]"]
Serving = Callable[[], AbstractContextManager[tuple[str, "subprocess.Popen[str]"]]]


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of synthesised models for all tests of a session: gpt2-mini takes 50 MB in each format."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def _use_model_cache(model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(model_cache))


@pytest.fixture(scope="session")
def known_bandwidth(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have the host's memory measured already, once for all processes of the suite and in seconds: a run takes 15."""
    base, worker = tmp_path_factory.getbasetemp(), bandwidth.Worker
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "known"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROOF_CACHE", str(shared))
        patch.setattr(bandwidth, "Worker", lambda job: worker({**job, "most_bytes": 2**26, "budget_s": 0}))
        bandwidth.measured(inspect(), bandwidth.host(), lambda *_: None)  # a lock lets one process do it
    shutil.copytree(shared, model_cache, dirs_exist_ok=True)


@pytest.fixture(scope="session", autouse=True)
def _asked_once() -> Iterator[None]:
    """What every plan asks of this machine and its engines anew, and what does not change: asked for real, and kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "host_rates", functools.cache(estimate.host_rates))
        patch.setattr(cpuinfo, "get_cpu_info", functools.cache(cpuinfo.get_cpu_info))
        patch.setattr(engine_choice, "describe", _described_once())
        yield


def _described_once() -> Callable[..., dict[str, Any]]:
    """`describe`, which starts a process for each engine; what another process lends or serves is asked each time."""
    ask, known = engine_choice.describe, dict[str, Any]()

    def describe(backends: Iterable[str], *elsewhere: Any) -> dict[str, Any]:
        names = list(backends)
        if any(elsewhere) or not {*names} <= {*ENGINES, "simulated"}:
            return ask(names, *elsewhere)
        told = known | ask([name for name in names if name not in known])
        known.update({name: info for name, info in told.items() if not isinstance(info, str)})  # not what went wrong
        return {name: told[name] for name in names}

    return describe


@pytest.fixture(scope="session")
def command() -> Command:
    """`tokenroof` as it is typed, run by this process: one of its own would import everything anew."""
    return _run_here


def _run_here(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    usual = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["tokenroof", *map(str, arguments)])
        for name, value in environment.items():
            patch.setenv(name, value)
        if cwd:
            patch.chdir(cwd)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main()
        finally:
            signal.signal(signal.SIGTERM, usual)
    code = ended.value.code or 0
    assert isinstance(code, int), code
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(arguments, code, *said)


@pytest.fixture(scope="session")
def probed() -> Probed:
    """Has a session score its probe, as a worker does: the columns of a row that verification reads."""
    return _probed


def _probed(backend: str, session: Session) -> dict[str, Any]:
    facts, scored = session.facts(), probe.score(session, window=None)
    return {
        "backend": backend,
        "machine": "here",
        "run_id": backend,
        "launch": 1,
        "model": "model",
        "weights_id": "the same",
        "weight_format": facts.weight_format,
        "kv_k_format": facts.kv_k_format,
        "kv_v_format": facts.kv_v_format,
        "probe_logits": json.dumps(scored.logits),
        "probe_nll": scored.nll,
    }


@pytest.fixture(scope="session")
def free_endpoint() -> Callable[[], str]:
    """Tells an address on loopback where nobody listens."""
    return _free_endpoint


def _free_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(scope="session")
def serving() -> Serving:
    """Lends this machine's memory and one thread at a free port: the endpoint, and the process of `serve-tier`."""
    return _serving


@contextmanager
def _serving() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    endpoint = _free_endpoint()
    command = [TOKENROOF, "serve-tier", "--bind", endpoint, "-t", "1", "--device", "cpu"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as server:
        try:
            assert server.stdout is not None
            assert "serving" in server.stdout.readline(), server.communicate()[1]
            yield endpoint, server
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def tier(serving: Serving) -> Iterator[str]:
    """The endpoint of a server that has all of this machine's memory."""
    with serving() as (endpoint, _):
        yield endpoint


@pytest.fixture
def small_tier(serving: Serving) -> Iterator[str]:
    """One that has 700 MB left."""
    with serving() as (endpoint, process):
        (worker,) = psutil.Process(process.pid).children()
        most = worker.memory_info().vms + 700_000_000
        worker.rlimit(psutil.RLIMIT_AS, (most, most))
        yield endpoint


@pytest.fixture(scope="session")
def tiny_hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 426 624 parameters in bf16 with a tokenizer, made by transformers."""
    import torch  # noqa: PLC0415  # heavy, and most of the tests here need none of it
    from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: PLC0415

    from harness.models.hf_config import read_config  # noqa: PLC0415
    from harness.models.tokenizer import write_hf  # noqa: PLC0415

    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    torch.manual_seed(1)
    directory = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(directory)
    write_hf(directory, read_config(directory))
    return directory


@pytest.fixture(scope="session")
def tiny_gguf(tiny_hf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a GGUF file in f16."""
    from harness.models.gguf_export import export  # noqa: PLC0415

    path = tmp_path_factory.mktemp("tiny") / "tiny-llama-f16.gguf"
    export(tiny_hf, path, "f16")
    return path
