"""What holds for the whole suite."""

import ctypes
import gc
import importlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No test may fail because the machine is slow or busy.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture(scope="module", autouse=True)
def _imports_are_no_garbage() -> None:
    """Leave what imports made out of collections: torch's sessions and hypothesis ask for many, of 0.2 s each."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def only_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand llama.cpp no device where it is told of none: it tries all that it knows, even RPC servers that ended."""
    own = importlib.import_module("llama_cpp.llama_cpp")  # most tests need no engine
    none = (ctypes.c_void_p * 1)(None)
    usual = own.llama_model_default_params

    def params() -> object:
        found = usual()
        found.devices = ctypes.addressof(none)
        return found

    for module in (own, importlib.import_module("llama_cpp")):  # where its class looks, and where tests do
        monkeypatch.setattr(module, "llama_model_default_params", params)


@dataclass(frozen=True)
class Served:
    """One behaviour of the fake server."""

    root: str

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def requests(self) -> list[dict[str, Any]]:
        """All completions that it was asked for, in order, with the time at which each token left."""
        return json.loads(_ask(f"{self.root}/log"))["requests"]

    def timed(self, n_gen: int, count: int = 1) -> list[dict[str, Any]]:
        """The last of those that answered so many tokens: warm-up and probing come before."""
        return [each for each in self.requests() if each.get("n_tokens") == n_gen and each["sends"]][-count:]


@dataclass(frozen=True)
class FakeServer:
    """An OpenAI-compatible server of known speed in a process of its own; see tests/serving/fake_server.py."""

    root: str

    def __call__(self, **behaviour: Any) -> Served:
        """Serve a `Behaviour` under a name of its own."""
        name = json.loads(_ask(f"{self.root}/behaviours", json.dumps(behaviour).encode()))
        return Served(f"{self.root}/{name}")


def _ask(url: str, body: bytes | None = None) -> bytes:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, body, timeout=30) as answer:
        return answer.read()


@pytest.fixture(scope="session")
def fake_server() -> Iterator[FakeServer]:
    """Serves any behaviour: `fake_server(ttft_s=0.1).base_url`."""
    command = [sys.executable, Path(__file__).with_name("serving") / "fake_server.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield FakeServer(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()
