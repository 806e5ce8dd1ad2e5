"""NVML's answers, given by a stand-in for the driver's library: no development machine has an NVIDIA GPU."""

import os
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from harness.machine import nvml
from harness.machine.catalog import find


def _driver(
    monkeypatch: pytest.MonkeyPatch, memory: Any, processes: Any, bus_width_bits: Any = None, clock_mhz: Any = None
) -> None:
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
        "nvmlDeviceGetMemoryBusWidth": bus_width_bits,
        "nvmlDeviceGetMaxClockInfo": clock_mhz,
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
    _driver(monkeypatch, refusal, refusal, refusal, refusal)
    assert nvml.gpus() == [nvml.NvidiaGpu("NVIDIA GB10", None)]
    assert nvml.gpus()[0].bandwidth_bytes_s is None
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


@pytest.mark.parametrize(
    ("device", "bus_width_bits", "clock_mhz", "above"),
    [  # what `nvidia-smi -q -d CLOCK` gives as the highest memory clock, in public logs
        ("rtx-5090", 512, 14001, 0),
        ("rtx-5060-ti-16gb", 128, 14001, 0),
        ("rtx-4090", 384, 10501, 0),
        ("t4", 256, 5001, 0),
        ("a100-40gb-sxm", 5120, 1215, 0),
        ("a100-80gb-sxm", 5120, 1593, 0),
        ("h100-sxm", 5120, 2619, 0),
        ("h200-sxm", 6144, 3201, 0.0243),  # NVIDIA prints 4.8 TB/s
        ("b200", 8192, 3996, 0.063),  # and 7.7
    ],
)
def test_bus_width_times_clock_is_the_vendors_bandwidth(
    monkeypatch: pytest.MonkeyPatch, device: str, bus_width_bits: int, clock_mhz: int, above: float
) -> None:
    _driver(monkeypatch, SimpleNamespace(total=2**34), [], bus_width_bits, clock_mhz)
    stated = find(device).bandwidth_bytes_s
    assert stated is not None
    assert nvml.gpus()[0].bandwidth_bytes_s == pytest.approx(stated * (1 + above), rel=0.002)


@pytest.mark.parametrize(("bus_width_bits", "clock_mhz"), [(0, 10501), (384, 0), (None, 10501), (384, None)])
def test_half_a_figure_is_none(monkeypatch: pytest.MonkeyPatch, bus_width_bits: Any, clock_mhz: Any) -> None:
    _driver(monkeypatch, SimpleNamespace(total=2**34), [], bus_width_bits, clock_mhz)
    assert nvml.gpus()[0].bandwidth_bytes_s is None
