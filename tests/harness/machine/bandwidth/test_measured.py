"""What the cache keeps, and when it is measured anew; the worker with the real torch, at small sizes."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import Accelerator, EngineInfo
from harness.errors import UserError
from harness.machine.bandwidth import measured as module
from harness.machine.bandwidth.curve import Curve, Measured, Point, Rate
from harness.machine.bandwidth.document import from_document, to_document
from harness.machine.bandwidth.measured import Device, accelerator, host, load_cached, measured
from harness.machine.hardware import Gpu, Machine
from harness.process import Event, Worker

MIB = 2**20
MACHINE = Machine("Linux 6.1 x86_64", "AMD EPYC", 2, 23 * 2**30, ())

rates = st.lists(st.floats(1e6, 1e15), min_size=1, max_size=4).map(lambda samples: Rate(tuple(samples)))
measurements = st.builds(
    Measured,
    st.dictionaries(st.integers(1, 2**40), st.dictionaries(st.text(), rates, min_size=1), min_size=1).map(
        lambda points: Curve(tuple(Point(size, points[size]) for size in sorted(points)))
    ),
    st.dictionaries(st.sampled_from(["f32", "f16", "bf16"]), rates),
    st.datetimes().map(datetime.isoformat),
    st.dictionaries(st.text(), st.text()),
)


def _ignore(what: str, share: float) -> None:
    pass


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Workers measure no more than 2 MiB, and are counted."""
    jobs: list[dict[str, Any]] = []

    def worker(job: dict[str, Any]) -> Worker:
        jobs.append(job)
        return Worker({**job, "most_bytes": 2 * MIB, "budget_s": 0})

    monkeypatch.setattr(module, "Worker", worker)
    return jobs


@given(measurements)
def test_a_measurement_survives_json(measurement: Measured) -> None:
    assert from_document(json.loads(json.dumps(to_document(measurement)))) == measurement


def test_the_host_is_measured_once_and_kept(small: list[dict[str, Any]], tmp_path: Path) -> None:
    assert load_cached(MACHINE, "cpu") is None
    told: list[str] = []
    first = measured(MACHINE, host(), lambda what, _: told.append(what))
    assert told[0] == "matrix products"
    assert "reading 2 MiB" in told
    assert measured(MACHINE, host(), _ignore) == first == load_cached(MACHINE, "cpu")
    assert len(small) == 1

    assert [point.working_set_bytes for point in first.curve.points] == [MIB, 2 * MIB]
    assert {"numpy xor int64", "torch max int32"} <= set(first.curve.points[0].kernels)
    assert all(len(rate.samples) >= 3 for point in first.curve.points for rate in point.kernels.values())
    assert set(first.matrix) == {"f32", "f16", "bf16"}
    age = datetime.now(UTC) - datetime.fromisoformat(first.measured_at)
    assert timedelta(0) <= age < timedelta(minutes=5)
    assert [path.suffix for path in (tmp_path / "bandwidth").iterdir() if path.suffix != ".lock"] == [".json"]


def test_refresh_measures_anew(small: list[dict[str, Any]]) -> None:
    numpy_alone = Device("cpu", "cpu", None)
    first = measured(MACHINE, numpy_alone, _ignore)
    second = measured(MACHINE, numpy_alone, _ignore, refresh=True)
    assert len(small) == 2
    assert second.curve != first.curve  # no two samples are the same to the nanosecond
    assert load_cached(MACHINE, "cpu") == second


DAMAGES = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe\x00",
    b'{"version": 1}',
    b'{"version": 0, "measured_at": "", "points": [], "flops_s": {}, "unavailable": {}}',
    b'{"version": 1, "measured_at": "", "points": [], "flops_s": {}, "unavailable": {}}',
    b'{"version": 1, "measured_at": "", "points": [{"working_set_bytes": 1, "bytes_s": {"xor": [-1]}}], '
    b'"flops_s": {}, "unavailable": {}}',
)


def test_a_damaged_file_counts_for_nothing(small: list[dict[str, Any]], tmp_path: Path) -> None:
    numpy_alone = Device("cpu", "cpu", None)
    measured(MACHINE, numpy_alone, _ignore)
    (path,) = (tmp_path / "bandwidth").glob("*.json")
    for damage in (*DAMAGES, path.read_bytes()[:-1]):
        path.write_bytes(damage)
        assert load_cached(MACHINE, "cpu") is None, damage
    again = measured(MACHINE, numpy_alone, _ignore)
    assert load_cached(MACHINE, "cpu") == again
    assert len(small) == 2


@pytest.mark.usefixtures("small")
def test_another_machine_and_another_device_have_their_own() -> None:
    measured(MACHINE, Device("cpu", "cpu", None), _ignore)
    gpu = Gpu("nvidia", "NVIDIA GeForce RTX 5090", 32 * 2**30)
    others = [
        replace(MACHINE, cpu="Intel Xeon"),
        replace(MACHINE, physical_cores=4),
        replace(MACHINE, ram_bytes=2 * MACHINE.ram_bytes),
        replace(MACHINE, gpus=(gpu,)),
        replace(MACHINE, power_mode="15W"),
    ]
    assert all(load_cached(machine, "cpu") is None for machine in others)
    assert load_cached(MACHINE, gpu.name) is None
    # The same hardware after an update of the system, which takes some KB more for itself.
    updated = replace(MACHINE, os="Linux 6.2 x86_64", ram_bytes=MACHINE.ram_bytes - 40_000)
    assert load_cached(updated, "cpu") is not None


@pytest.mark.usefixtures("small")
def test_numpy_alone_measures_the_host() -> None:
    found = measured(MACHINE, Device("cpu", "cpu", None), _ignore)
    assert set(found.curve.points[0].kernels) == {"numpy xor int64", "numpy max int32"}
    assert set(found.matrix) == {"f32"}
    assert "pip install torch" in found.unavailable["bf16"]


@pytest.mark.usefixtures("small")
def test_what_cannot_be_measured_is_one_line() -> None:
    with pytest.raises(UserError, match="memory of RTX 5090 cannot be measured: ") as failure:
        measured(MACHINE, Device("RTX 5090", "cuda:7", "torch"), _ignore)
    assert "\n" not in str(failure.value)
    assert load_cached(MACHINE, "RTX 5090") is None
    with pytest.raises(UserError, match="CUDA0"):
        measured(MACHINE, Device("RTX 5090", "CUDA0", "llama.cpp"), _ignore)


def _events(**job: object) -> list[Event]:
    with Worker({"task": "bandwidth", "n_threads": 2, "budget_s": 0, "most_bytes": MIB, **job}) as worker:
        return list(worker.events(120))


def test_the_worker_tells_progress_and_then_the_measurement() -> None:
    *progress, last = _events(backend="torch", device="cpu")
    assert {event["event"] for event in progress} == {"progress"}
    assert last["event"] == "measured"
    (point,) = from_document(last["measured"]).curve.points
    # The machine's own figure of this size: some 100 GB/s on two cores. A factor of 1000 off is a wrong unit.
    assert 1e9 < point.best_bytes_s < 1e13


ENGINES: dict[str, EngineInfo | str] = {
    "llama.cpp": EngineInfo("0.3", "", (Accelerator("CUDA0", "NVIDIA GeForce RTX 5090"),)),
    "torch": EngineInfo(
        "2.13",
        "",
        (Accelerator("cuda:0", "NVIDIA RTX A6000"), Accelerator("cuda:1", "NVIDIA GeForce RTX 5090")),
    ),
    "mlx": "it cannot be loaded",
}


def test_an_accelerator_is_read_by_an_engine_that_sees_it() -> None:
    # A run with llama.cpp on CUDA0: torch calls the same card cuda:1.
    assert accelerator("NVIDIA GeForce RTX 5090", ENGINES) == Device("NVIDIA GeForce RTX 5090", "cuda:1", "torch")
    assert accelerator("NVIDIA H200", ENGINES) is None
    # llama.cpp's own kernels are the last resort.
    alone = accelerator("NVIDIA GeForce RTX 5090", {"llama.cpp": ENGINES["llama.cpp"]})
    assert alone == Device("NVIDIA GeForce RTX 5090", "CUDA0", "llama.cpp")


def test_on_a_mac_mlx_reads() -> None:
    engines: dict[str, EngineInfo | str] = {
        "torch": EngineInfo("2.13", "", (Accelerator("mps", "Apple M3 Ultra"),)),
        "mlx": EngineInfo("0.32", "", (Accelerator("Metal", "Apple M3 Ultra"),)),
        "llama.cpp": EngineInfo("0.3", "", (Accelerator("MTL0", "Apple M3 Ultra"),)),
    }
    assert accelerator("Apple M3 Ultra", engines) == Device("Apple M3 Ultra", "Metal", "mlx")
    del engines["mlx"]
    assert accelerator("Apple M3 Ultra", engines) == Device("Apple M3 Ultra", "mps", "torch")
