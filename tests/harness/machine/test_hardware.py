import platform
import subprocess
import sys

import psutil
import pytest

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
