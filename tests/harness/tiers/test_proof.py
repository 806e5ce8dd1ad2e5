"""What an engine's buffers must show of a request, with Qwen3 30B A3B's experts worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from backends.base import Accelerator, EngineInfo, Facts, Tier
from harness.estimate import Rates
from harness.models.presets import PRESETS
from harness.models.source import resolve
from harness.options import Options
from harness.roofline.hf_config import from_hf_config
from harness.roofline.nominal import nominal_weights
from harness.tiers.proof import Demand, demand_of, unkept
from harness.work import Work, combinations

MODEL = "qwen3-30b-a3b"
WEIGHTS = nominal_weights(from_hf_config(PRESETS[MODEL]), "bf16")
EXPERTS = 2 * 128 * 3 * 2048 * 768  # bytes of a layer's
GB = 10**9


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _demand(*, gpu: bool = True, **options: Any) -> Demand:
    accelerators = (Accelerator("RPC0", "RPC device 0", 2**36),) if gpu else ()
    work: Work
    (work,) = combinations(Options(**options), [resolve(MODEL)], {"llama.cpp": EngineInfo("1", "", accelerators)})
    demand = demand_of(work, WEIGHTS)
    assert demand is not None
    return demand


def _facts(on_device: range, *, host: tuple[int, int] = (GB, 0), device: tuple[int, int] = (60 * GB, 0)) -> Facts:
    """Bytes of weights and of the KV cache on each."""
    tiers = (
        Tier("cpu", None, tuple(layer for layer in range(49) if layer not in on_device), *host),
        Tier("RPC0", "RPC device 0", tuple(on_device), *device),
    )
    return Facts(
        backend_version="1", engine_build="", engine_mode="llama_decode", device="RPC0", device_name="RPC device 0",
        device_memory_bytes=2**36, n_threads=1, gpu_layers_effective=len(on_device), flash_attn="on",
        n_params=WEIGHTS.n_params, weight_format="bf16", weight_bytes=WEIGHTS.n_bytes, kv_k_format="f16",
        kv_v_format="f16", kv_allocated_tokens=0, engine_settings={}, tiers=tiers,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "got", "kept"),
    [(-1, 49, True), (49, 49, True), (99, 49, True), (8, 8, True), (0, 0, True), (-1, 48, False), (8, 0, False)],
)
def test_as_many_layers_as_asked_must_be_there(asked: int, got: int, kept: bool) -> None:
    reason = unkept(_demand(n_gpu_layers=asked), _facts(range(49 - got, 49)))
    assert (reason is None) == kept
    if reason is not None:
        layers = 49 if asked == -1 else asked
        assert reason.startswith(f"{layers} layers were to be off the host, the output layer counted as one")
        assert f"{got} are (1.00 GB of weights on cpu; 60.0 GB of weights on RPC0)" in reason


def test_all_layers_of_a_build_without_a_device_are_on_the_host() -> None:
    on_host = replace(_facts(range(0)), tiers=(Tier("cpu", None, tuple(range(49)), 60 * GB, 0),))
    assert unkept(_demand(gpu=False), on_host) is None
    assert unkept(_demand(gpu=False, device="cpu"), on_host) is None


def test_experts_that_were_to_stay_must_be_in_the_hosts_memory() -> None:
    # Of the 20 layers 12 are on the device; the experts of the other eight lie on the host with their layers.
    some = _demand(n_gpu_layers=41, n_cpu_moe=20)
    assert unkept(some, _facts(range(8, 49), host=(12 * EXPERTS, 0))) is None
    assert "-ncmoe 20 was to keep" in str(unkept(some, _facts(range(8, 49), host=(8 * EXPERTS, 0))))
    everything = _demand(n_cpu_moe=20)
    assert unkept(everything, _facts(range(49), host=(20 * EXPERTS, 0))) is None
    astray = unkept(everything, _facts(range(49), host=(GB, 0)))
    assert astray is not None
    assert f"-ncmoe 20 was to keep {20 * EXPERTS / 1e9:.1f} GB of experts" in astray


def test_the_kv_cache_must_lie_where_it_was_asked_to() -> None:
    beside, in_host = _demand(n_gpu_layers=25), _demand(n_gpu_layers=25, kv_offload=False)
    layers = range(24, 49)
    before = _facts(layers)
    half = _facts(layers, host=(GB, 50_000_000), device=(30 * GB, 50_000_000))
    none = _facts(layers, host=(GB, 100_000_000), device=(30 * GB, 0))
    assert unkept(beside, before) is None, "nothing is allocated yet"
    assert unkept(beside, half) is None
    assert "the KV cache of 24 layers was to be on RPC0" in str(unkept(beside, none))
    assert unkept(in_host, none) is None
    assert "50,000,000 B are on RPC0" in str(unkept(in_host, half))


def test_an_engine_without_a_choice_has_nothing_to_prove() -> None:
    (work,) = combinations(Options(), [resolve(MODEL)], {"torch": EngineInfo("1", "")})
    assert demand_of(work, WEIGHTS) is None
