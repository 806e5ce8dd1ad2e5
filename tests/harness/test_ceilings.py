"""The ceiling columns of a row, with Llama 3.1 8B worked out by hand."""

import math
from pathlib import Path
from typing import Any

import pytest

from backends.base import Accelerator, EngineInfo
from harness.ceilings import CEILING, Ceilings
from harness.estimate import Rates
from harness.machine.bandwidth.curve import Curve, Measured, Point, Rate
from harness.memories import HOST, DeviceMemory
from harness.models.source import Artifact, prepare, resolve
from harness.options import Options
from harness.work import Work, combinations
from harness.workload import Case

STREAMED = (8_030_261_248 - 128_256 * 4096) * 2  # parameters as Meta publishes them less the input embedding, bf16
LAYER = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)  # and its two norms
KV_TOKEN = 131_072
CASE = Case(0, 512, 129)  # 128 steps, at contexts of 512 to 639: 575.5 on average
MEAN_KV = 575.5 * KV_TOKEN
FACTS = {"kv_k_format": "bf16", "kv_v_format": "bf16", "weight_format": "bf16", "device": "cpu"}
RATES = {"decode_tok_s": 2.0, "prefill_tok_s": 40.0}
NO_FILE = Artifact(Path(), "", 0)


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _measured(bytes_s: float, flops_s: float) -> Measured:
    point = Point(2**30, {"xor": Rate((bytes_s,))})
    return Measured(Curve((point,)), {"f32": Rate((flops_s / 2,)), "bf16": Rate((flops_s,))}, "2026-01-01T00:00:00")


HOST_MEMORY = DeviceMemory(HOST, None, "only root may read it", _measured(40e9, 1e12))
GPU_MEMORY = DeviceMemory("NVIDIA GeForce RTX 5090", 1792 * 10**9, "catalog rtx-5090", _measured(1600e9, 200e12))
MEMORIES = {HOST: HOST_MEMORY, GPU_MEMORY.name: GPU_MEMORY}


def _work(backend: str = "torch", *, gpu: bool = False, model: str = "llama-3.1-8b", **options: Any) -> Work:
    accelerators = (Accelerator("gpu0", GPU_MEMORY.name, 32 * 2**30),) if gpu else ()
    (work,) = combinations(Options(**options), [resolve(model)], {backend: EngineInfo("1", "build", accelerators)})
    return work


def test_a_row_of_one_memory() -> None:
    values, missing = Ceilings(_work(), NO_FILE, MEMORIES).columns(CASE, FACTS, RATES)
    assert values["streamed_bytes_per_token"] == STREAMED
    assert values["kv_bytes_per_token"] == KV_TOKEN
    assert values["kv_read_bytes"] == MEAN_KV
    assert values["bandwidth_measured_gbs"] == pytest.approx(40)
    ceiling = 40e9 / (STREAMED + MEAN_KV)  # 2.65 tokens a second
    assert values["decode_ceiling_tok_s"] == pytest.approx(ceiling)
    assert values["mbu"] == pytest.approx(2.0 / ceiling)
    # Two operations a weight and token, the LM head once; four a layer, head element and pair of tokens.
    flops = 2 * 512 * (STREAMED / 2 - 128_256 * 4096) + 2 * 128_256 * 4096 + 4 * 32 * 4096 * (512 * 513 // 2)
    assert values["prefill_flops"] == flops
    assert values["prefill_ceiling_tok_s"] == pytest.approx(512 / (flops / 1e12))
    assert values["mfu"] == pytest.approx(40 * flops / 512 / 1e12)
    assert values["bandwidth_source"] == "cpu: vendor: only root may read it, measured 2026-01-01"
    assert missing["decode_ceiling_spec_tok_s"] == missing["bandwidth_spec_gbs"] == "only root may read it"
    assert missing["decode_ceiling_expected_tok_s"] == "the model has no experts"
    assert "ceiling_warning" not in values
    assert set(values) | set(missing) | {"ceiling_warning"} == set(CEILING)


def test_both_ceilings_of_a_gpu_of_the_catalog() -> None:
    facts = FACTS | {"device": "cuda:0", "gpu_layers_effective": 33}
    values, _ = Ceilings(_work(gpu=True), NO_FILE, MEMORIES).columns(CASE, facts, RATES)
    assert values["decode_ceiling_spec_tok_s"] == pytest.approx(1792e9 / (STREAMED + MEAN_KV))
    assert values["decode_ceiling_tok_s"] == pytest.approx(1600e9 / (STREAMED + MEAN_KV))
    assert values["bandwidth_spec_gbs"] == pytest.approx(1792)


def test_the_bandwidth_is_the_one_for_as_many_bytes_as_a_step_reads() -> None:
    points = Point(2**20, {"xor": Rate((200e9,))}), Point(2**36, {"xor": Rate((20e9,))})
    curve = Measured(Curve(points), {"bf16": Rate((1e12,))}, "2026-01-01T00:00:00")
    memories = {HOST: DeviceMemory(HOST, None, "?", curve)}
    values, _ = Ceilings(_work(), NO_FILE, memories).columns(CASE, FACTS, RATES)
    # On the log-log line from 200 GB/s at 2^20 bytes to 20 GB/s at 2^36: a tenth over 16 doublings.
    doublings = math.log2(STREAMED + MEAN_KV) - 20
    assert values["bandwidth_measured_gbs"] == pytest.approx(200 * 10 ** (-doublings / 16))


def test_a_batch_whose_operations_take_longer_than_its_bytes_is_bound_by_them() -> None:
    values, _ = Ceilings(_work(), NO_FILE, MEMORIES).columns(Case(0, 512, 129, batch=64), FACTS, RATES)
    assert values["decode_ceiling_bound"] == "compute"
    # Two operations a weight and sequence at 10^12 a second: below 67 tokens a second whatever the bandwidth.
    assert 0.9 * 1e12 / STREAMED < values["decode_ceiling_tok_s"] < 1e12 / STREAMED
    one, _ = Ceilings(_work(), NO_FILE, MEMORIES).columns(CASE, FACTS, RATES)
    assert one["decode_ceiling_bound"] == "memory"


def test_layers_left_on_the_host_are_read_there() -> None:
    mini = _work("llama.cpp", gpu=True, model="gpt2-mini", n_gpu_layers=2, weights="f32")
    artifact = prepare(mini.source, "gguf", "f32")
    facts = FACTS | {"device": "CUDA0", "gpu_layers_effective": 2, "weight_format": "f32"}
    values, _ = Ceilings(mini, artifact, MEMORIES).columns(Case(0, 8, 2), facts, RATES)
    layer = 4 * (12 * 384**2 + 13 * 384)  # GPT-2's matrices, and its norms and biases
    head = 4 * (50257 * 384 + 2 * 384)
    kv_layer = 2 * 384 * 2 * 8  # the only step reads 8 tokens, in bf16
    on_host, on_gpu = 2 * (layer + kv_layer), layer + head + kv_layer
    assert values["streamed_bytes_per_token"] == 3 * layer + head
    assert values["decode_ceiling_tok_s"] == pytest.approx(1 / (on_host / 40e9 + on_gpu / 1600e9))
    assert values["bandwidth_source"].startswith("cpu: vendor: ")
    assert "; NVIDIA GeForce RTX 5090: vendor: catalog rtx-5090" in values["bandwidth_source"]


def test_a_rate_above_its_ceiling_says_so() -> None:
    ceiling = 40e9 / (STREAMED + MEAN_KV)
    ceilings = Ceilings(_work(), NO_FILE, MEMORIES)
    values, _ = ceilings.columns(CASE, FACTS, RATES | {"decode_tok_s": 1.05 * ceiling})
    assert values["mbu"] == pytest.approx(1.05)
    assert values["ceiling_warning"].startswith("decode at 105.0% of its ceiling: measure the idle machine anew")


def test_what_cannot_be_told_has_a_reason() -> None:
    ceilings = Ceilings(_work(), NO_FILE, MEMORIES)
    _, missing = ceilings.columns(Case(0, 512, 0), FACTS, {"prefill_tok_s": 40.0})
    assert missing["mbu"] == missing["decode_ceiling_tok_s"] == "no decode step was timed"
    _, missing = ceilings.columns(Case(512, 0, 8), FACTS, {"decode_tok_s": 2.0})
    assert missing["mfu"] == "no prompt (-p 0)"
    quantised, missing = ceilings.columns(CASE, FACTS | {"weight_format": "q4_k"}, RATES)
    assert quantised["decode_ceiling_tok_s"] > 0
    assert missing["mfu"] == "no rate of matrix products is measured for q4_k weights"
    unmeasured = {HOST: DeviceMemory(HOST, None, "?", None, "its memory is too small")}
    values, missing = Ceilings(_work(), NO_FILE, unmeasured).columns(CASE, FACTS, RATES)
    assert missing["mbu"] == missing["mfu"] == "its memory is too small"
    assert values["streamed_bytes_per_token"] == STREAMED


def test_a_simulated_engine_has_no_ceiling() -> None:
    values, missing = Ceilings(_work(), NO_FILE, {}).columns(CASE, FACTS, RATES)
    assert values == {}
    assert set(missing) == set(CEILING)


def test_experts_are_counted_at_their_fewest_and_expected_beside_it() -> None:
    ceilings = Ceilings(_work(model="qwen3-30b-a3b"), NO_FILE, MEMORIES)
    one, _ = ceilings.columns(CASE, FACTS, RATES)
    assert one["decode_ceiling_expected_tok_s"] == pytest.approx(one["decode_ceiling_tok_s"])
    eight, _ = ceilings.columns(Case(0, 512, 129, batch=8), FACTS, RATES)
    # Of 128 experts 8 tokens that choose 8 each read 128 (1 - (1 - 1/16)^8) = 51.6 on average, not 8.
    experts = 48 * 3 * 2048 * 768 * 2
    always = eight["streamed_bytes_per_token"] - 8 * experts
    expected = always + 128 * (1 - (15 / 16) ** 8) * experts
    kv = eight["kv_read_bytes"]
    assert eight["decode_ceiling_expected_tok_s"] == pytest.approx(8 * 40e9 / (expected + kv))
    assert eight["decode_ceiling_tok_s"] == pytest.approx(8 * 40e9 / (eight["streamed_bytes_per_token"] + kv))
