"""What holds for the whole suite."""

import ctypes
import importlib

import pytest
from hypothesis import HealthCheck, settings

# No test may fail because the machine is slow or busy.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture
def only_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand llama-cpp-python's own class no device: it tries all that the process knows, also RPC servers long ended."""
    llama_cpp = importlib.import_module("llama_cpp.llama_cpp")  # most tests need no engine
    none = (ctypes.c_void_p * 1)(None)
    usual = llama_cpp.llama_model_default_params

    def params() -> object:
        found = usual()
        found.devices = ctypes.addressof(none)
        return found

    monkeypatch.setattr(llama_cpp, "llama_model_default_params", params)
