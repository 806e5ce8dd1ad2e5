from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest

TOKENROOF = Path(sys.executable).with_name("tokenroof")

Serving = Callable[[], AbstractContextManager[tuple[str, "subprocess.Popen[str]"]]]


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of synthesised models for all tests of a session: gpt2-mini takes 50 MB in each format."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def _use_model_cache(model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(model_cache))


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
