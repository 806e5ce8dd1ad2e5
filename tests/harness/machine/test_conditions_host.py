"""The host's governor, heat and power source, from trees as the kernel lays them out, and macOS by a stand-in."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.machine.conditions import before, governor, heat, load, power_source
from harness.machine.conditions.governor import Policy


@pytest.fixture(autouse=True)
def _bare_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(governor, "_POLICIES", tmp_path / "cpufreq")
    monkeypatch.setattr(heat, "_SENSORS", tmp_path / "hwmon")
    monkeypatch.setattr(heat, "_CORES", tmp_path / "cpu")
    monkeypatch.setattr(power_source, "_SUPPLIES", tmp_path / "power_supply")
    monkeypatch.setattr(load, "look", lambda _: (0.0, None))
    heat._pressure_token.cache_clear()
    yield
    heat._pressure_token.cache_clear()


def _write(folder: Path, **values: str | int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")


def _policy(root: Path, number: int, name: str, driver: str, preference: str | None = None) -> None:
    _write(root / "cpufreq" / f"policy{number}", scaling_governor=name, scaling_driver=driver)
    if preference:
        _write(root / "cpufreq" / f"policy{number}", energy_performance_preference=preference)


def test_a_machine_that_tells_nothing_warns_of_nothing() -> None:
    assert before.warnings([]) == []
    assert governor.policies() == []
    assert heat.highest_c(heat.cpu_sensors()) is None
    assert heat.throttle_count(heat.cpu_throttle_files()) is None
    assert heat.thermal_pressure() is None
    assert power_source.power_source() is None


@pytest.mark.parametrize(
    ("name", "driver", "preference", "saves"),
    [
        ("powersave", "acpi-cpufreq", None, True),  # the lowest frequency, always
        ("schedutil", "acpi-cpufreq", None, False),
        ("performance", "intel_pstate", "performance", False),
        ("powersave", "intel_pstate", "balance_performance", False),  # the usual state of an Intel machine
        ("powersave", "intel_pstate", "balance_power", True),
        ("powersave", "amd-pstate-epp", "power", True),
        ("powersave", "intel_cpufreq", None, True),  # intel_pstate in passive mode: the governor's own meaning
    ],
)
def test_a_governor_that_saves_power_is_a_warning(
    tmp_path: Path, name: str, driver: str, preference: str | None, saves: bool
) -> None:
    for number in range(4):
        _policy(tmp_path, number, name, driver, preference)
    assert len(governor.policies()) == 1
    said = before.warnings([])
    assert [f"the CPU governor is {name}" in text for text in said] == ([True] if saves else [])
    assert all("cpupower" in text for text in said)


def test_kinds_of_cores_may_differ(tmp_path: Path) -> None:
    _policy(tmp_path, 0, "schedutil", "cpufreq-dt")
    _policy(tmp_path, 4, "powersave", "cpufreq-dt")
    assert governor.policies() == [Policy("powersave", "cpufreq-dt", ""), Policy("schedutil", "cpufreq-dt", "")]
    assert len(before.warnings([])) == 1


def test_the_fastest_cores_frequency(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = [SimpleNamespace(current=mhz) for mhz in (800.0, 5400.0, 1200.0)]
    monkeypatch.setattr(psutil, "cpu_freq", lambda **_: cores)
    assert governor.highest_mhz() == 5400.0
    monkeypatch.setattr(psutil, "cpu_freq", lambda **_: [])
    assert governor.highest_mhz() is None

    def fail(percpu: bool) -> Any:
        raise NotImplementedError("can't find current frequency file")

    monkeypatch.setattr(psutil, "cpu_freq", fail)
    assert governor.highest_mhz() is None


def _chip(root: Path, number: int, name: str, **values: str | int) -> None:
    _write(root / "hwmon" / f"hwmon{number}", name=name, **values)


def test_the_processors_sensors_and_no_others(tmp_path: Path) -> None:
    _chip(tmp_path, 0, "nvme", temp1_input=91850, temp1_label="Composite")
    _chip(tmp_path, 1, "acpitz", temp1_input=99000)
    _chip(
        tmp_path, 2, "coretemp", temp1_input=68000, temp1_label="Package id 0", temp2_input=71000, temp2_label="Core 0"
    )  # fmt: skip
    assert heat.highest_c(heat.cpu_sensors()) == 71.0


def test_amds_fan_figure_is_taken_only_where_there_is_no_other(tmp_path: Path) -> None:
    _chip(tmp_path, 0, "k10temp", temp1_input=70250, temp1_label="Tctl")
    assert heat.highest_c(heat.cpu_sensors()) == 70.25
    _chip(tmp_path, 0, "k10temp", temp2_input=43250, temp2_label="Tdie")
    assert heat.highest_c(heat.cpu_sensors()) == 43.25


def test_a_sensor_that_fails_or_talks_nonsense_is_left_out(tmp_path: Path) -> None:
    _chip(tmp_path, 0, "coretemp", temp1_input="", temp2_input=50000)
    (tmp_path / "hwmon" / "hwmon0" / "temp3_input").mkdir()
    assert heat.highest_c(heat.cpu_sensors()) == 50.0


def test_throttle_counts_of_all_cores(tmp_path: Path) -> None:
    for core in range(2):
        _write(tmp_path / f"cpu/cpu{core}/thermal_throttle", core_throttle_count=core, package_throttle_count=3)
    _write(tmp_path / "cpu/cpufreq/thermal_throttle", core_throttle_count=100)
    assert heat.throttle_count(heat.cpu_throttle_files()) == 0 + 1 + 3 + 3


LAPTOP = {"ADP1": {"type": "Mains", "online": 1}, "BAT0": {"type": "Battery", "status": "Charging"}}
EMPTYING = {"BAT0": {"type": "Battery", "status": "Discharging"}}
MOUSE = {"hidpp_battery_0": {"type": "Battery", "scope": "Device", "status": "Discharging", "online": 1}}


@pytest.mark.parametrize(
    ("supplies", "source"),
    [
        (LAPTOP, "mains"),
        ({"ADP1": {"type": "Mains", "online": 0}} | EMPTYING, "battery"),
        # held at 80 %
        (LAPTOP | {"BAT0": {"type": "Battery", "status": "Not charging"}}, "mains"),
        # at the charger's limit: it feeds the machine, and the battery helps
        (LAPTOP | EMPTYING, "mains"),
        ({"ucsi-source-psy-1": {"type": "USB", "online": 1}, "BAT1": {"type": "Battery", "status": "Full"}}, "mains"),
        (EMPTYING, "battery"),
        (MOUSE, None),
        (MOUSE | LAPTOP, "mains"),
    ],
)  # fmt: skip
def test_mains_or_battery(tmp_path: Path, supplies: dict[str, dict[str, str | int]], source: str | None) -> None:
    for name, values in supplies.items():
        _write(tmp_path / "power_supply" / name, **values)
    assert power_source.power_source() == source
    assert [text.startswith("on battery") for text in before.warnings([])] == ([True] if source == "battery" else [])


@pytest.mark.parametrize(("plugged", "source"), [(True, "mains"), (False, "battery"), (None, None)])
def test_mains_or_battery_elsewhere(monkeypatch: pytest.MonkeyPatch, plugged: bool | None, source: str | None) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=plugged), raising=False)
    assert power_source.power_source() == source
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None)
    assert power_source.power_source() is None
    monkeypatch.delattr(psutil, "sensors_battery")
    assert power_source.power_source() is None


def _macos(monkeypatch: pytest.MonkeyPatch, level: int, status: int = 0) -> None:
    """notify(3): a token for a name, a state for the token; 0 is success."""

    class Library:
        def notify_register_check(self, name: bytes, token: Any) -> int:
            assert name == b"com.apple.system.thermalpressurelevel"
            token._obj.value = 17
            return status

        def notify_get_state(self, token: ctypes.c_int, state: Any) -> int:
            assert token.value == 17
            state._obj.value = level
            return status

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)


@pytest.mark.parametrize(
    ("level", "name"), [(0, "nominal"), (1, "moderate"), (2, "heavy"), (4, "sleeping"), (9, "level 9")]
)
def test_macos_tells_its_thermal_pressure(monkeypatch: pytest.MonkeyPatch, level: int, name: str) -> None:
    _macos(monkeypatch, level)
    assert heat.thermal_pressure() == name
    assert [name in text for text in before.warnings([])] == ([] if level == 0 else [True])


def test_macos_that_refuses_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _macos(monkeypatch, level=2, status=1)
    assert heat.thermal_pressure() is None
