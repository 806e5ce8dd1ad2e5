"""NVML's answers, given by a stand-in for the driver's library: no development machine has an NVIDIA GPU."""

import os
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from harness.machine import nvml


def _driver(monkeypatch: pytest.MonkeyPatch, memory: Any, processes: Any) -> None:
    def answer(value: Any) -> Any:
        def call(*_: Any) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

        return call

    for name, value in {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetName": "NVIDIA GB10",
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetComputeRunningProcesses": processes,
    }.items():
        monkeypatch.setattr(pynvml, name, answer(value))


def test_no_driver_is_no_gpu() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert nvml.gpus() == []
        assert nvml.process_bytes() == (None, "no NVIDIA driver")
    else:
        pynvml.nvmlShutdown()
        assert nvml.gpus()


def test_not_supported_is_empty_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    _driver(monkeypatch, refusal, refusal)
    assert nvml.gpus() == [nvml.NvidiaGpu("NVIDIA GB10", None)]
    assert nvml.process_bytes() == (None, "the driver does not tell memory by process")


def test_a_process_is_found_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SimpleNamespace(pid=os.getpid(), usedGpuMemory=5 * 2**30)
    other = SimpleNamespace(pid=1, usedGpuMemory=2**30)
    _driver(monkeypatch, SimpleNamespace(total=32 * 2**30), [other, mine])
    assert nvml.gpus()[0].memory_bytes == 32 * 2**30
    assert nvml.process_bytes() == (5 * 2**30, None)


def test_a_process_that_the_driver_does_not_list_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    # In a container the driver knows it by another id.
    _driver(monkeypatch, SimpleNamespace(total=1), [SimpleNamespace(pid=1, usedGpuMemory=2**30)])
    assert nvml.process_bytes()[0] is None
    _driver(monkeypatch, SimpleNamespace(total=1), [])
    assert nvml.process_bytes()[0] is None


@pytest.mark.parametrize("call", ["nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"])
def test_a_gpu_that_is_lost_costs_no_run(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    _driver(monkeypatch, SimpleNamespace(total=1), [])

    def lost(*_: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, call, lost)
    assert len(nvml.gpus()) == (1 if call == "nvmlDeviceGetName" else 0)


def test_memory_that_windows_hides_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(monkeypatch, SimpleNamespace(total=1), [SimpleNamespace(pid=os.getpid(), usedGpuMemory=None)])
    assert nvml.process_bytes()[0] is None
