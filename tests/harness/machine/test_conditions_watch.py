"""What a watcher sees: of the host by trees as the kernel lays them out, of a GPU by a stand-in for NVIDIA's driver."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

from harness.machine import nvml
from harness.machine.conditions import before, heat, load, looks, watch
from harness.machine.conditions.looks import Look
from harness.machine.conditions.watch import Watch, summary

RTX_5090 = "NVIDIA GeForce RTX 5090"
NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
MISSING = {"temp_c_max": "no sensor", "throttled": "no counter"}


def _look(temp_c: float | None = None, held_back: set[str] | None = None, at_s: float = 0.0, **facts: Any) -> Look:
    return Look(temp_c, None if held_back is None else frozenset(held_back), facts, MISSING, at_s)


def test_a_repetitions_looks_are_put_together() -> None:
    seen = summary(
        [
            _look(61, set(), gpu_power_w=300.0, power_source="mains"),
            _look(74, {"power cap"}, gpu_power_w=575.0, power_source="battery"),
            _look(72, {"power cap", "thermal"}, gpu_power_w=None, power_source="battery"),
        ]
    )
    assert seen.values == {"temp_c_max": 74, "throttled": "power cap, thermal"}
    assert seen.missing == {}
    assert seen.details == {"looks": 3, "gpu_power_w": [300.0, 575.0], "power_source": ["battery", "mains"]}
    json.dumps(seen.details)


def test_never_held_back_is_no_and_never_told_is_empty() -> None:
    assert summary([_look(50, set()), _look(51, set())]).values["throttled"] == "no"
    assert summary([_look(50, None), _look(51, set())]).values["throttled"] == "no"
    seen = summary([_look(), _look()])
    assert seen.values == {}
    assert seen.missing == MISSING


def test_what_came_before_the_repetition_does_not_count() -> None:
    # The fill of its depth was hot; the repetition began at 100 s.
    coming = iter([_look(90, {"thermal"}, at_s=99.9), _look(60, set(), at_s=100.5), _look(61, set(), at_s=101.0)])
    watching = Watch(lambda: next(coming))
    assert watching.since(99.0).values == {"temp_c_max": 90, "throttled": "thermal"}
    assert watching.since(100.0).values == {"temp_c_max": 60, "throttled": "no"}
    assert watching.since(100.7).details["looks"] == 1


def test_it_looks_once_a_second_and_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EVERY_S", 0.01)
    taken: list[float] = []

    @contextmanager
    def looker(*_: Any) -> Iterator[looks.Looker]:
        yield lambda: taken.append(time.time()) or _look(50, set(), at_s=time.time())  # type: ignore[func-returns-value]

    monkeypatch.setattr(watch, "looker", looker)
    start_s = time.time()
    with watch.watch("cpu", None) as watching:
        while len(taken) < 3:
            time.sleep(0.01)
        seen = watching.since(start_s)
    assert seen.details["looks"] >= 4, "three of its own and the one that was asked for"
    after = len(taken)
    time.sleep(0.05)
    assert len(taken) == after, "it has stopped"


def test_this_machine_can_be_watched() -> None:
    with watch.watch("cpu", None) as watching:
        seen = watching.since(time.time())
    assert seen.values.keys() | seen.missing.keys() == {"temp_c_max", "throttled"}
    assert not seen.values.keys() & seen.missing.keys()
    assert seen.details["looks"] == 1


def _write(path: Path, value: str | int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


def test_a_hosts_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(heat, "_SENSORS", tmp_path / "hwmon")
    monkeypatch.setattr(heat, "_CORES", tmp_path / "cpu")
    counter = tmp_path / "cpu/cpu0/thermal_throttle/package_throttle_count"
    sensor = tmp_path / "hwmon/hwmon3/temp1_input"
    _write(sensor.with_name("name"), "coretemp")
    _write(sensor, 55000)
    _write(counter, 12)
    with looks.looker("cpu", None) as look:
        first = look()
        assert (first.temp_c, first.held_back) == (55.0, frozenset()), "what throttled it before is over"
        _write(sensor, 100000)
        _write(counter, 15)
        assert (look().temp_c, look().held_back) == (100.0, frozenset()), "told once"
        _write(counter, 16)
        assert look().held_back == {"thermal"}


@pytest.mark.parametrize(("level", "held_back"), [("nominal", set()), ("heavy", {"thermal (heavy)"})])
@pytest.mark.parametrize(("device", "name"), [("cpu", None), ("Metal", "Apple M3 Ultra")])
def test_macos_holds_processor_and_gpu_back_alike(
    monkeypatch: pytest.MonkeyPatch, level: str, held_back: set[str], device: str, name: str | None
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(heat, "thermal_pressure", lambda: level)
    with looks.looker(device, name) as look:
        seen = summary([look()])
    assert look().held_back == held_back
    assert seen.details["thermal_pressure"] == [level]
    assert "macOS" in seen.missing["temp_c_max"]


def _driver(monkeypatch: pytest.MonkeyPatch, names: list[str], **answers: Any) -> None:
    def answer(value: Any) -> Any:
        def call(handle: int = 0, *what: Any) -> Any:
            said = value[handle] if isinstance(value, list) else value
            said = said[what[0]] if isinstance(said, dict) else said
            if isinstance(said, Exception):
                raise said
            return said

        return call

    for name, value in {"Name": names, **answers}.items():
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", answer(value))
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(names))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)


def _telling(monkeypatch: pytest.MonkeyPatch, names: list[str], **answers: Any) -> None:
    _driver(
        monkeypatch,
        names,
        **{
            "Temperature": 71,
            "CurrentClocksEventReasons": pynvml.nvmlClocksEventReasonNone,
            "ClockInfo": {pynvml.NVML_CLOCK_SM: 2805, pynvml.NVML_CLOCK_MEM: 14001},
            "PowerUsage": 431_250,  # milliwatts
            "PowerManagementLimit": 575_000,
            "PowerManagementDefaultLimit": 575_000,
            **answers,
        },
    )


def test_a_gpus_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    _telling(monkeypatch, ["NVIDIA RTX A400", RTX_5090], Temperature=[40, 83], CurrentClocksEventReasons=[0, reasons])
    with looks.looker("cuda:0", RTX_5090) as look:
        seen = summary([look()])
    assert seen.values == {"temp_c_max": 83, "throttled": "power cap, thermal"}
    gpu = {name: value for name, value in seen.details.items() if name.startswith("gpu")}
    assert gpu == {
        "gpu_sm_clock_mhz": [2805, 2805],
        "gpu_memory_clock_mhz": [14001, 14001],
        "gpu_power_w": [431.25, 431.25],
        "gpu_power_limit_w": [575, 575],
    }


def test_a_split_models_looks_are_of_all_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    cap = pynvml.nvmlClocksEventReasonSwPowerCap
    _telling(monkeypatch, [RTX_5090, RTX_5090], Temperature=[66, 78], CurrentClocksEventReasons=[cap, 0])
    with looks.looker("CUDA0,CUDA1", f"{RTX_5090}, {RTX_5090}") as look:
        seen = summary([look()])
    assert seen.values == {"temp_c_max": 78, "throttled": "power cap"}
    assert {"gpu0_power_w", "gpu1_power_w"} < seen.details.keys()


def test_a_gpu_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(
        monkeypatch,
        ["NVIDIA GB10"],
        **dict.fromkeys(
            ("Temperature", "CurrentClocksEventReasons", "ClockInfo", "PowerUsage", "PowerManagementLimit",
             "PowerManagementDefaultLimit"),
            NOT_SUPPORTED,
        ),
    )  # fmt: skip
    with looks.looker("cuda:0", "NVIDIA GB10") as look:
        seen = summary([look()])
    assert seen.values == {}
    assert set(seen.missing.values()) == {"NVIDIA's driver does not tell"}
    with looks.looker("hip:0", "AMD Radeon RX 7900 XTX") as look:
        assert "AMD Radeon RX 7900 XTX" in summary([look()]).missing["throttled"]


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (pynvml.nvmlClocksEventReasonApplicationsClocksSetting, "clocks set by hand"),
        (pynvml.nvmlClocksEventReasonSwPowerCap, "power cap"),
        (pynvml.nvmlClocksEventReasonHwSlowdown, "hardware slowdown"),
        (pynvml.nvmlClocksEventReasonSyncBoost, "sync boost"),
        (pynvml.nvmlClocksEventReasonSwThermalSlowdown, "thermal"),
        (pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, "thermal"),
        (pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"),
        (pynvml.nvmlClocksEventReasonDisplayClockSetting, "display clocks"),
        (1 << 20, "reason 0x100000"),
    ],
)
def test_clocks_event_reasons_have_names(reason: int, name: str) -> None:
    assert nvml.held_back(reason) == {name}
    assert nvml.held_back(reason | pynvml.nvmlClocksEventReasonGpuIdle) == {name}, "an idle GPU is not held back"
    assert nvml.held_back(pynvml.nvmlClocksEventReasonNone) == set()


def test_a_gpu_that_is_held_back_or_limited_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "look", lambda _: (0.0, None))
    _telling(monkeypatch, [RTX_5090, "NVIDIA RTX A400"], CurrentClocksEventReasons=[0, 4])
    assert not [text for text in before.warnings([RTX_5090]) if "NVIDIA" in text]
    _telling(monkeypatch, [RTX_5090], CurrentClocksEventReasons=4, PowerManagementLimit=400_000)
    held, limited = [text for text in before.warnings([RTX_5090]) if "NVIDIA" in text]
    assert f"{RTX_5090} is held back before the run starts: power cap;" in held
    assert "400 W of its usual 575 W" in limited
    assert "nvidia-smi -pl 575" in limited
