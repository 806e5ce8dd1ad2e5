"""What a row says was asked, and which devices a work may use."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import Accelerator, EngineInfo
from harness.estimate import Rates
from harness.models.source import resolve
from harness.options import Options
from harness.work import Settings, Work, combinations

# The keys that rows had before parts of a model could be placed.
OLD = {"weights", "device", "n_threads", "n_gpu_layers", "flash_attn", "kv_k_format", "kv_v_format", "n_batch"}
OLD |= {"n_ubatch"}
NEW: dict[str, Any] = {
    "n_cpu_moe": 4,
    "kv_offload": False,
    "split_mode": "row",
    "tensor_split": (3.0, 1.0),
    "rpc": ("127.0.0.1:50052", "spark.local:50053"),
    "allow_partial": True,
}
GPUS = (Accelerator("RPC0", "RPC device 0", 2**34), Accelerator("CUDA0", "a GPU", 2**34))


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _settings(**more: Any) -> Settings:
    return Settings("bf16", "auto", 8, -1, "auto", "auto", "auto", 2048, 512, **more)


@given(st.sets(st.sampled_from(sorted(NEW))))
def test_only_what_is_not_neutral_is_added_to_what_old_rows_ask(names: set[str]) -> None:
    asked = _settings(**{name: NEW[name] for name in names}).asked()
    assert set(asked) == OLD | names
    # A row is JSON: what is read back from it is compared with what is asked now.
    assert json.loads(json.dumps(asked)) == asked


def test_a_row_names_no_other_machine() -> None:
    assert _settings(rpc=NEW["rpc"]).asked()["rpc"] == ["127.0.0.1:50052", "HOST:50053"]


def _works(backend: str = "llama.cpp", **options: Any) -> list[Work]:
    engines = {backend: EngineInfo("1", "build", GPUS)}
    return list(combinations(Options(**options), [resolve("gpt2-mini")], engines))


def test_every_combination_of_the_placing_flags_is_a_work() -> None:
    works = _works(n_gpu_layers=(0, -1), n_cpu_moe=(0, 4), kv_offload=(True, False), tensor_split=((), (3.0, 1.0)))
    assert len({json.dumps(work.settings.asked()) for work in works}) == len(works) == 16


@pytest.mark.parametrize(
    ("backend", "formats"),
    [
        ("llama.cpp", ["q4_k_m", "q8_0", "mxfp4_moe", "f16"]),  # what means the same runs once
        ("mlx", ["4bit", "8bit", "q4_k_m", "mxfp4", "f16"]),
        ("torch", ["int4", "int8", "q4_k_m", "mxfp4", "f16"]),
    ],
)
def test_each_engine_has_its_own_name_of_a_weight_format(backend: str, formats: list[str]) -> None:
    works = _works(backend, weights=("4bit", "8BIT", "Q4_K_M", "mxfp4", "f16"))
    assert [work.settings.weights for work in works] == formats


@pytest.mark.parametrize(
    ("backend", "options", "ids"),
    [
        ("llama.cpp", {}, ["RPC0", "CUDA0"]),
        ("llama.cpp", {"device": "gpu"}, ["RPC0", "CUDA0"]),
        ("llama.cpp", {"device": "CUDA0"}, ["CUDA0"]),
        ("llama.cpp", {"split_mode": "none"}, ["RPC0"]),
        ("llama.cpp", {"device": "cpu"}, []),
        ("torch", {}, ["RPC0"]),
    ],
)
def test_the_devices_that_may_hold_a_part(backend: str, options: dict[str, Any], ids: list[str]) -> None:
    (work,) = _works(backend, **options)
    assert [device.id for device in work.accelerators] == ids
