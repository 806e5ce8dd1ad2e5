"""Energy counters: trees as the kernel lays them out, NVML's answers by a stand-in for the driver's library."""

import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine.conditions import energy
from harness.machine.conditions.energy import Counter, Meter

INTEL_RANGE_UJ = 262143328850  # of a desktop processor's package: 32 bits of 61 µJ


def _zone(root: Path, folder: str, name: str, energy_uj: str | None, range_uj: int = INTEL_RANGE_UJ) -> Path:
    zone = root / folder
    zone.mkdir(parents=True)
    (zone / "name").write_text(f"{name}\n")
    (zone / "max_energy_range_uj").write_text(f"{range_uj}\n")
    if energy_uj is not None:
        (zone / "energy_uj").write_text(f"{energy_uj}\n")
    return zone


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(energy, "_POWERCAP", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


def test_packages_are_added_and_their_parts_and_the_board_are_not(powercap: Path) -> None:
    packages = [_zone(powercap, f"intel-rapl:{number}", f"package-{number}", "1000000") for number in (0, 1)]
    others = [
        _zone(powercap, "intel-rapl:0:0", "core", "1000000"),
        _zone(powercap, "intel-rapl:0:1", "dram", "1000000"),
        _zone(powercap, "intel-rapl:2", "psys", "1000000"),
        _zone(powercap, "intel-rapl-mmio:0", "package-0", "1000000"),
    ]
    with energy.meter("cpu", None) as meter:
        before = meter.read()
        for number, zone in enumerate([*packages, *others], start=1):
            (zone / "energy_uj").write_text(f"{1000000 + number * 1_000_000}\n")
        assert meter.between(before, meter.read(), seconds=0.5) == (pytest.approx(1.0 + 2.0), None)


def test_a_counter_that_wrapped(powercap: Path) -> None:
    zone = _zone(powercap, "intel-rapl:0", "package-0", str(INTEL_RANGE_UJ - 2_000_000))
    with energy.meter("cpu", None) as meter:
        before = meter.read()
        (zone / "energy_uj").write_text("5000000\n")
        assert meter.between(before, meter.read(), seconds=1.0) == (pytest.approx(7.0), None)


@given(start=st.integers(0, INTEL_RANGE_UJ - 1), spent=st.integers(0, INTEL_RANGE_UJ - 1), seconds=st.floats(0.02, 400))
def test_what_was_spent_comes_out_wherever_the_counter_stood(start: int, spent: int, seconds: float) -> None:
    counter = Counter(lambda: None, 1e-6, 0.02, wraps_at=INTEL_RANGE_UJ, most_s=400)
    joules, why = Meter((counter,)).between([start], [(start + spent) % INTEL_RANGE_UJ], seconds)
    assert why is None
    assert joules == pytest.approx(spent / 1e6)


def test_a_stretch_in_which_a_counter_may_have_wrapped_twice_is_empty(powercap: Path) -> None:
    _zone(powercap, "intel-rapl:0", "package-0", "1")
    with energy.meter("cpu", None) as meter:  # 262 kJ at 600 W: 437 s
        assert meter.between([1], [2], seconds=430)[0] is not None
        joules, why = meter.between([1], [2], seconds=440)
    assert joules is None
    assert why is not None
    assert "437 s" in why


def test_a_counter_only_root_may_read_is_named(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = _zone(powercap, "intel-rapl:0", "package-0", "1000000")
    read = Path.read_text

    def refuse(path: Path, *args: Any, **kwargs: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refuse)  # these tests may run as root, whom no file mode stops
    with energy.meter("cpu", None) as meter:
        joules, why = meter.between(meter.read(), meter.read(), seconds=1.0)
    assert joules is None
    assert why is not None
    assert str(zone / "energy_uj") in why
    assert "root" in why


def test_a_counter_that_stops_answering_is_empty(powercap: Path) -> None:
    zone = _zone(powercap, "intel-rapl:0", "package-0", "1000000")
    with energy.meter("cpu", None) as meter:
        before = meter.read()
        (zone / "energy_uj").unlink()
        assert meter.between(before, meter.read(), seconds=1.0)[0] is None


@pytest.mark.usefixtures("powercap")
def test_a_virtual_machine_has_none() -> None:
    with energy.meter("cpu", None) as meter:
        joules, why = meter.between(meter.read(), meter.read(), seconds=1.0)
    assert joules is None
    assert "virtual machine" in str(why)


@pytest.mark.parametrize(("platform", "system"), [("darwin", "macOS"), ("win32", "Windows")])
def test_other_systems_have_none(monkeypatch: pytest.MonkeyPatch, platform: str, system: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with energy.meter("cpu", None) as meter:
        assert system in str(meter.missing)


def _driver(monkeypatch: pytest.MonkeyPatch, names: list[str], energy_mj: list[Any]) -> None:
    def counter(handle: int) -> int:
        value = energy_mj[handle]
        if isinstance(value, Exception):
            raise value
        return int(value)

    for name, answer in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(names),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: names[handle],
        "nvmlDeviceGetTotalEnergyConsumption": counter,
    }.items():
        monkeypatch.setattr(pynvml, name, answer)


RTX_5090 = "NVIDIA GeForce RTX 5090"


def test_a_gpus_millijoules_without_those_of_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[Any] = [7_000_000, 90_000]
    _driver(monkeypatch, [RTX_5090, "NVIDIA RTX A400"], counts)
    with energy.meter("cuda:0", RTX_5090) as meter:
        before = meter.read()
        counts[:] = [7_850_000, 95_000]
        assert meter.between(before, meter.read(), seconds=2.0) == (pytest.approx(850), None)


def test_a_model_split_over_gpus_takes_the_energy_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[Any] = [1000, 2000]
    _driver(monkeypatch, [RTX_5090, RTX_5090], counts)
    with energy.meter("CUDA0,CUDA1", f"{RTX_5090}, {RTX_5090}") as meter:
        before = meter.read()
        counts[:] = [2000, 5000]
        assert meter.between(before, meter.read(), seconds=2.0) == (pytest.approx(4), None)


def test_which_of_two_equal_gpus_worked_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(monkeypatch, [RTX_5090, RTX_5090], [1000, 2000])
    with energy.meter("cuda:1", RTX_5090) as meter:
        assert f"2 GPUs are called {RTX_5090}" in str(meter.missing)


def test_a_repetition_too_short_for_nvmls_steps_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(monkeypatch, [RTX_5090], [1000])
    with energy.meter("cuda:0", RTX_5090) as meter:
        assert meter.between([1000], [2000], seconds=0.9) == (
            None,
            "shorter than 1 s: too short for the energy counter's steps",
        )


def test_a_driver_that_was_reloaded_gives_no_negative_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(monkeypatch, [RTX_5090], [1000])
    with energy.meter("cuda:0", RTX_5090) as meter:
        assert meter.between([7_000_000], [1000], seconds=2.0)[0] is None


def test_a_gpu_without_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(monkeypatch, ["NVIDIA GB10"], [pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)])
    with energy.meter("cuda:0", "NVIDIA GB10") as meter:
        assert "driver counts no energy" in str(meter.missing)
    with energy.meter("hip:0", "AMD Radeon RX 7900 XTX") as meter:
        assert "AMD Radeon RX 7900 XTX" in str(meter.missing)
