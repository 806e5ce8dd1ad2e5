"""The ceiling columns of a row, with Llama 3.1 8B worked out by hand."""

import math
from pathlib import Path
from typing import Any

import pytest

from backends.base import Accelerator, EngineInfo
from harness.ceilings.columns import CEILING, Ceilings
from harness.ceilings.memories import HOST, DeviceMemory
from harness.estimate import Rates
from harness.machine.bandwidth.curve import Curve, Measured, Point, Rate
from harness.models.artifacts import Artifact, prepare
from harness.models.source import resolve
from harness.options import Options
from harness.work import Work, combinations
from harness.workload import Case

STREAMED = (8_030_261_248 - 128_256 * 4096) * 2  # parameters as Meta publishes them less the input embedding, bf16
LAYER = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)  # and its two norms
KV_TOKEN = 131_072
CASE = Case(0, 512, 129)  # 128 steps, at contexts of 512 to 639: 575.5 on average
MEAN_KV = 575.5 * KV_TOKEN
FACTS: dict[str, Any] = {"kv_k_format": "bf16", "kv_v_format": "bf16", "weight_format": "bf16", "device": "cpu"}
FACTS |= {"device_name": None, "weight_bytes": 16 * 10**9}
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
MEMORIES = {HOST: HOST_MEMORY, "gpu0": GPU_MEMORY}


def _work(backend: str = "torch", *, gpu: bool = False, model: str = "llama-3.1-8b", **options: Any) -> Work:
    accelerators = (Accelerator("gpu0", GPU_MEMORY.name, 32 * 2**30),) if gpu else ()
    (work,) = combinations(Options(**options), [resolve(model)], {backend: EngineInfo("1", "build", accelerators)})
    return work


def _tiers(on_host: set[int], *on_gpus: set[int]) -> list[dict[str, Any]]:
    """As the worker tells them: the host first."""
    held = [("cpu", None, on_host), *((f"gpu{i}", GPU_MEMORY.name, layers) for i, layers in enumerate(on_gpus))]
    return [
        {"memory": memory, "name": name, "layers": sorted(layers), "weight_bytes": 7 * 10**8, "kv_bytes": 10**6}
        for memory, name, layers in held
    ]


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
    assert missing["decode_ceiling_expected_tok_s"] == missing["experts_hit_expected"] == "the model has no experts"
    assert "ceiling_warning" not in values
    assert set(values) | set(missing) | {"ceiling_warning"} == set(CEILING)


def test_both_ceilings_of_a_gpu_of_the_catalog() -> None:
    facts = FACTS | {"device": "cuda:0"}
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
    facts = FACTS | {"device": "gpu0", "weight_format": "f32", "tiers": _tiers({0, 1}, {2, 3})}
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
    assert values["ceiling_warning"].startswith("decode at 105.0 % of its ceiling: measure the idle machine anew")


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


QWEN_EXPERTS = 2 * 8 * 3 * 2048 * 768  # that a token reads of a layer: 8 of its 128, three matrices each
QWEN_KV_LAYER = 2 * 2 * 4 * 128 * 575.5  # keys and values of four heads at 575.5 tokens


def _qwen(tiers: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """The ceiling columns of Qwen3 30B A3B in llama.cpp; its shape's bytes are torch's, which are nominal."""
    work = _work("torch", gpu=True, model="qwen3-30b-a3b", **options)
    values, _ = Ceilings(work, NO_FILE, MEMORIES).columns(CASE, FACTS | {"device": "gpu0", "tiers": tiers}, RATES)
    return values


def test_a_kv_cache_and_experts_in_the_hosts_memory_are_read_there() -> None:
    everything = _tiers(set(), set(range(49)))
    together = _qwen(everything)
    step = together["streamed_bytes_per_token"] + together["kv_read_bytes"]
    assert together["decode_ceiling_tok_s"] == pytest.approx(1600e9 / step)
    kv = 48 * QWEN_KV_LAYER
    assert together["kv_read_bytes"] == pytest.approx(kv)
    apart = _qwen(everything, kv_offload=False)
    assert apart["decode_ceiling_tok_s"] == pytest.approx(1 / ((step - kv) / 1600e9 + kv / 40e9))
    apart = _qwen(everything, n_cpu_moe=10)
    experts = 10 * QWEN_EXPERTS
    assert apart["decode_ceiling_tok_s"] == pytest.approx(1 / ((step - experts) / 1600e9 + experts / 40e9))
    assert apart["bandwidth_measured_gbs"] == pytest.approx(step * apart["decode_ceiling_tok_s"] / 1e9)


def test_several_devices_are_read_one_after_the_other_each_at_its_own_speed() -> None:
    slow = DeviceMemory("RPC device 0", None, "whoever serves it does not tell", _measured(10e9, 1e12))
    tiers = _tiers(set(range(10)), set(range(10, 30)), set(range(30, 33)))
    engine = EngineInfo("1", "build", tuple(Accelerator(f"gpu{i}", "a GPU", 2**35) for i in (0, 1)))
    (work,) = combinations(Options(), [resolve("llama-3.1-8b")], {"torch": engine})
    ceilings = Ceilings(work, NO_FILE, MEMORIES | {"gpu1": slow})
    facts = FACTS | {"device": "gpu0,gpu1", "tiers": tiers}
    values, missing = ceilings.columns(CASE, facts, RATES)
    kv = MEAN_KV / 32
    read = 10 * (LAYER + kv), 20 * (LAYER + kv), 2 * (LAYER + kv) + STREAMED - 32 * LAYER
    seconds = read[0] / 40e9 + read[1] / 1600e9 + read[2] / 10e9
    assert values["decode_ceiling_tok_s"] == pytest.approx(1 / seconds)
    assert missing["decode_ceiling_spec_tok_s"] == "only root may read it"

    column = ceilings.tiers(CASE, facts, None)
    assert column is not None
    assert [(each["memory"], each["layers"], each["output"]) for each in column] == [
        ("cpu", 10, False),
        ("gpu0", 20, False),
        ("gpu1", 2, True),
    ]
    assert [each["read_bytes"] for each in column] == pytest.approx(read, abs=1)
    assert [each["bandwidth_measured_gbs"] for each in column] == pytest.approx([40, 1600, 10])
    assert [each["bandwidth_spec_gbs"] for each in column] == [None, 1792, None]
    assert {(each["weight_bytes"], each["kv_bytes"]) for each in column} == {(7 * 10**8, 10**6)}


def test_a_device_that_only_holds_what_is_looked_up_is_read_at_no_speed() -> None:
    facts = FACTS | {"device": "gpu0", "tiers": _tiers(set(), set(range(33)))}
    column = Ceilings(_work(gpu=True), NO_FILE, MEMORIES).tiers(CASE, facts, None)
    assert column is not None
    assert (column[0]["layers"], column[0]["read_bytes"], column[0]["bandwidth_measured_gbs"]) == (0, 0, None)


def test_an_engine_that_holds_all_in_one_memory_is_one_tier() -> None:
    facts = FACTS | {"device": "cuda:0", "device_name": GPU_MEMORY.name}
    ceilings = Ceilings(_work(gpu=True), NO_FILE, MEMORIES)
    (tier,) = ceilings.tiers(CASE, facts, 10**9) or []
    assert (tier["memory"], tier["name"], tier["layers"], tier["output"]) == ("cuda:0", GPU_MEMORY.name, 32, True)
    assert (tier["weight_bytes"], tier["kv_bytes"], tier["read_bytes"]) == (16 * 10**9, 10**9, STREAMED + MEAN_KV)
    assert (tier["bandwidth_measured_gbs"], tier["bandwidth_spec_gbs"]) == (1600, 1792)
    (tier,) = ceilings.tiers(Case(0, 512, 0), facts, 10**9) or []
    assert tier["read_bytes"] is None, "no decode step was timed"
    assert Ceilings(_work(), NO_FILE, {}).tiers(CASE, FACTS, None) is None


def test_no_ceiling_is_made_up_for_what_is_not_known() -> None:
    two = (Accelerator("gpu0", "a GPU", 2**35), Accelerator("gpu1", "a GPU", 2**35))
    (by_rows,) = combinations(
        Options(split_mode="row"), [resolve("llama-3.1-8b")], {"torch": EngineInfo("1", "build", two)}
    )
    facts = FACTS | {"device": "gpu0,gpu1", "tiers": _tiers(set(), set(range(20)), set(range(20, 33)))}
    _, missing = Ceilings(by_rows, NO_FILE, MEMORIES | {"gpu1": GPU_MEMORY}).columns(CASE, facts, RATES)
    assert "-sm row" in missing["decode_ceiling_tok_s"]
    _, missing = Ceilings(_work(gpu=True), NO_FILE, MEMORIES).columns(CASE, facts, RATES)
    assert missing["mbu"] == "nothing is known of the memory of gpu1"
    astray = FACTS | {"engine_settings": {"not_honoured": "4 layers were to be elsewhere"}}
    _, missing = Ceilings(_work(), NO_FILE, MEMORIES).columns(CASE, astray, RATES)
    assert missing["mbu"] == "the model lies otherwise than asked: 4 layers were to be elsewhere"


def test_a_gpu_may_compute_what_lies_on_the_host_when_there_is_much_of_it() -> None:
    tiers = _tiers(set(range(32)), {32})
    without, sent = (
        Ceilings(_work(gpu=True), NO_FILE, MEMORIES).columns(
            CASE, FACTS | {"device": "gpu0", "tiers": tiers, "engine_settings": {"op_offload": on}}, RATES
        )[0]
        for on in (False, True)
    )
    # All of the body at the host's 10^12 FLOP/s, or at the GPU's 200 times as many; then the bytes take longer.
    assert sent["prefill_ceiling_tok_s"] > 10 * without["prefill_ceiling_tok_s"]
    assert sent["prefill_ceiling_tok_s"] == pytest.approx(512 / (32 * LAYER / 40e9), rel=0.01)
    assert sent["decode_ceiling_tok_s"] == pytest.approx(without["decode_ceiling_tok_s"])


def test_without_a_cache_the_ceiling_is_that_of_a_prefill_each_step() -> None:
    case = Case(0, 512, 3, kv_cache="off")
    values, missing = Ceilings(_work(), NO_FILE, MEMORIES).columns(case, FACTS, RATES)
    flops = [
        2 * n * (STREAMED / 2 - 128_256 * 4096) + 2 * 128_256 * 4096 + 4 * 32 * 4096 * n * (n + 1) // 2
        for n in (513, 514)
    ]
    assert values["decode_ceiling_tok_s"] == pytest.approx(2 / (sum(flops) / 1e12))
    assert values["decode_ceiling_bound"] == "compute"
    assert values["mbu"] == pytest.approx(2.0 / values["decode_ceiling_tok_s"])
    assert values["prefill_ceiling_tok_s"] > 0
    assert missing["kv_read_bytes"].startswith("without a KV cache each step is a prefill")
    assert set(values) | set(missing) | {"ceiling_warning"} == set(CEILING)
    unmeasured = {HOST: DeviceMemory(HOST, None, "?", None, "its memory is too small")}
    _, missing = Ceilings(_work(), NO_FILE, unmeasured).columns(case, FACTS, RATES)
    assert missing["decode_ceiling_tok_s"] == missing["mbu"] == "its memory is too small"


def test_a_prefix_that_was_not_kept_has_no_prefill_ceiling() -> None:
    case = Case(512, 64, 3, kv_cache="prefix")
    ceilings = Ceilings(_work(), NO_FILE, MEMORIES)
    kept, _ = ceilings.columns(case, FACTS, RATES, 512)
    assert kept["prefill_ceiling_tok_s"] == ceilings.columns(Case(512, 64, 3), FACTS, RATES)[0]["prefill_ceiling_tok_s"]
    lost, missing = ceilings.columns(case, FACTS, RATES, 0)
    assert "prefill_flops" not in lost
    assert missing["mfu"] == "the engine kept 0 tokens of the prefix and filled the others again"
