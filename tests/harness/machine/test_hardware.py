import platform
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.machine import hardware, nvml, pci
from harness.machine.hardware import Gpu, Machine, inspect, physical_cores
from harness.machine.memory import HostPeak


def test_this_machine_is_described_as_its_system_does() -> None:
    machine = inspect()
    assert machine.ram_bytes == psutil.virtual_memory().total
    assert machine.os.split() == [platform.system(), platform.release(), platform.machine()]
    assert machine.cpu
    assert platform.node() not in machine.label


def test_threads_default_to_the_physical_cores_that_may_be_used() -> None:
    assert 1 <= physical_cores() <= (psutil.cpu_count(logical=False) or psutil.cpu_count() or 1)


@pytest.mark.skipif(sys.platform != "linux", reason="taskset is Linux's")
def test_fewer_allowed_cores_are_fewer_threads() -> None:
    code = "from harness.machine.hardware import physical_cores; print(physical_cores())"
    one = ["taskset", "-c", "0", sys.executable, "-c", code]
    assert subprocess.run(one, capture_output=True, text=True, check=True).stdout.strip() == "1"


@pytest.mark.parametrize(
    ("gpus", "label"),
    [
        ((Gpu("nvidia", "NVIDIA GeForce RTX 5090", 2**35),), "rtx-5090"),
        ((Gpu("nvidia", "NVIDIA GB10", None),), "gb10"),
        ((Gpu("apple", "Apple M3 Ultra", None),), "apple-m3-ultra"),
        ((), "intel-core-i9-14900k-24-cores"),
    ],
)
def test_a_label_names_the_hardware(gpus: tuple[Gpu, ...], label: str) -> None:
    assert Machine("Linux 6 x86_64", "Intel(R) Core(TM) i9-14900K", 24, 2**36, gpus).label == label


def test_peak_memory_sees_what_was_taken_since_it_began() -> None:
    before = bytearray(200_000_000)
    del before
    peak = HostPeak()
    start = peak.bytes()
    held = bytearray(b"x") * 100_000_000
    grown = peak.bytes() - start
    del held
    if peak.since == "case":
        assert 90_000_000 <= grown <= 130_000_000
    else:
        assert grown >= 0


def _tool(folder: Path, name: str, prints: str) -> None:
    """A system tool in a folder of its own, for the PATH."""
    tool = folder / name
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\n")
    tool.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the tool")
def test_a_jetson_tells_its_board_and_power_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"
    (tmp_path / "model").write_text(f"{board}\0")
    monkeypatch.setattr(hardware, "_BOARD", tmp_path / "model")
    _tool(tmp_path, "nvpmodel", "NV Power Mode: MAXN_SUPER\n2")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert (inspect().board, inspect().power_mode) == (board, "MAXN_SUPER")
    (tmp_path / "nvpmodel").unlink()
    assert inspect().power_mode is None


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the tool")
@pytest.mark.parametrize(("registry", "cores"), [('  "gpu-core-count" = 40', 40), ("", None)])
def test_a_mac_tells_its_gpu_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: str, cores: int | None
) -> None:
    _tool(tmp_path, "ioreg", f'+-o AGXAcceleratorG17X\n{{\n      "model" = "Apple M5 Max"\n{registry}\n}}')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(hardware.cpuinfo, "get_cpu_info", lambda: {"brand_raw": "Apple M5 Max"})
    assert hardware._apple() == [Gpu("apple", "Apple M5 Max", None, cores=cores)]


def test_the_drivers_figures_come_with_their_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "gpus", lambda: [nvml.NvidiaGpu("NVIDIA GeForce RTX 4090", 24564 * 2**20, 384, 10501)])
    (gpu,) = (gpu for gpu in inspect().gpus if gpu.vendor == "nvidia")
    assert gpu.bandwidth_bytes_s == 1_008_096_000_000
    assert gpu.bandwidth_source == "NVML 384 bit × 10501 MHz × 2"


def test_only_cards_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [
        pci.Card("amd", "AMD Radeon RX 7900 XTX", 24 * 2**30, integrated=False),
        pci.Card("amd", "AMD Radeon Graphics", 512 * 2**20, integrated=False),  # a processor's own
        pci.Card("amd", None, 16 * 2**30, integrated=False),
        pci.Card("intel", "Arc B580", None, integrated=False),
        pci.Card("intel", "Intel Graphics", None, integrated=True),
        pci.Card("nvidia", None, None, integrated=False),  # NVML's to tell
    ]
    monkeypatch.setattr(pci, "cards", lambda: cards)
    names = [gpu.name for gpu in inspect().gpus if gpu.vendor in {"amd", "intel"}]
    assert names == ["AMD Radeon RX 7900 XTX", "AMD Radeon", "Arc B580"]
