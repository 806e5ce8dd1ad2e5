"""Ceilings, against a pencil, and what must hold of any of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.models.presets import PRESETS
from harness.roofline.architecture import Architecture, Attention, FeedForward, Layer
from harness.roofline.ceiling import Memory, Share, decode_ceiling, in_parallel, in_series, prefill_ceiling, whole
from harness.roofline.hf_config import from_hf_config
from harness.roofline.parts import WHOLE, Part
from harness.roofline.traffic import decode_flops, kv_read_bytes, prefill_flops
from harness.roofline.weights import Weight, Weights, expected_experts, tensors_of

GB = 1e9


def in_bf16(arch: Architecture) -> Weights:
    parts = tuple(Weight(t.name, t.layer, t.n_elements, 2 * t.n_elements, t.use) for t in tensors_of(arch))
    return Weights(arch, parts)


def with_windows(arch: Architecture, window: int) -> Architecture:
    """Every other layer looks back on `window` tokens."""
    layers = [
        replace(layer, mixer=replace(layer.mixer, window=window))
        if index % 2 and isinstance(layer.mixer, Attention)
        else layer
        for index, layer in enumerate(arch.layers)
    ]
    return replace(arch, layers=tuple(layers))


# One of each kind: grouped heads, all heads, experts, windows, shared keys, latent attention, recurrent layers.
KINDS = (
    "llama-3.1-8b",
    "gpt2",
    "qwen3-30b-a3b",
    "gemma-3-4b",
    "gemma-4-26b-a4b",
    "gpt-oss-20b",
    "deepseek-v3",
    "qwen3.6-27b",
)
MODELS = {name: in_bf16(from_hf_config(PRESETS[name])) for name in KINDS}
LLAMA = MODELS["llama-3.1-8b"]
# 8 030 261 248 parameters, all but the 128 256 x 4096 of the input embedding.
LLAMA_STREAMED_BYTES = 2 * (8_030_261_248 - 525_336_576)
LLAMA_KV_BYTES = 131_072  # a token

names = st.sampled_from(KINDS)
often_enough = settings(max_examples=40, deadline=None)
bandwidths = st.floats(1e9, 1e13)
depths = st.integers(0, 100_000)
batches = st.integers(1, 64)


def rate(weights: Weights, memory: Memory, *, decode_start: int = 512, n_steps: int = 16, batch: int = 1) -> float:
    return decode_ceiling(whole(weights, memory), decode_start=decode_start, n_steps=n_steps, batch=batch).tok_s


def test_llama_on_a_dgx_spark() -> None:
    spark = Memory("LPDDR5X", 273 * GB)
    assert rate(LLAMA, spark, decode_start=0, n_steps=1) == pytest.approx(273e9 / 15_009_849_344)  # 18.19
    at_8k = decode_ceiling(whole(LLAMA, spark), decode_start=8192, n_steps=1)
    assert at_8k.streamed_bytes == LLAMA_STREAMED_BYTES
    assert at_8k.first_kv_bytes == at_8k.mean_kv_bytes == 2**30
    assert at_8k.tok_s == at_8k.expected_tok_s == pytest.approx(16.974, abs=0.001)
    assert at_8k.bound == "memory"


def test_a_run_integrates_over_its_growing_context() -> None:
    found = decode_ceiling(whole(LLAMA, Memory("", 100 * GB)), decode_start=1000, n_steps=3, batch=2)
    seconds = sum((LLAMA_STREAMED_BYTES + 2 * LLAMA_KV_BYTES * context) / 100e9 for context in (1000, 1001, 1002))
    assert found.tok_s == pytest.approx(2 * 3 / seconds)
    assert found.streamed_bytes == LLAMA_STREAMED_BYTES
    assert (found.first_kv_bytes, found.mean_kv_bytes) == (2 * LLAMA_KV_BYTES * 1000, 2 * LLAMA_KV_BYTES * 1001)


def test_a_window_stops_the_growth() -> None:
    arch = with_windows(LLAMA.architecture, 4096)
    found = decode_ceiling(whole(in_bf16(arch), Memory("", 100 * GB)), decode_start=32_768, n_steps=1)
    assert found.first_kv_bytes == LLAMA_KV_BYTES / 2 * (32_768 + 4096)


def test_layers_in_series_add_up_and_fetched_bytes_move_at_the_links_speed() -> None:
    gpu, ram = Memory("VRAM", 1000 * GB), Memory("RAM", 90 * GB, link_bytes_s=25 * GB)
    shares = [Share(ram, LLAMA, range(16), output=False), Share(gpu, LLAMA, range(16, 32), output=True)]
    half_kv = LLAMA_KV_BYTES * 2048 / 2
    per_layer = 2 * 218_112_000  # Q and O 4096², K and V 4096 x 1024, three of 4096 x 14 336, two norms
    output = LLAMA_STREAMED_BYTES - 32 * per_layer
    seconds = (16 * per_layer + half_kv) / 25e9 + (16 * per_layer + output + half_kv) / 1000e9
    assert decode_ceiling(shares, decode_start=2048, n_steps=1).tok_s == pytest.approx(1 / seconds)


QWEN = MODELS["qwen3-30b-a3b"]
QWEN_READ_EXPERTS = 2 * 8 * 3 * 2048 * 768  # of a layer: 8 of its 128, three matrices each
QWEN_KV_LAYER = 2 * 2 * 4 * 128  # a token: keys and values of four heads


def test_a_kv_cache_on_the_host_is_read_there() -> None:
    gpu, ram = Memory("VRAM", 1000 * GB), Memory("RAM", 90 * GB)
    layers = range(48)
    shares = [
        Share(gpu, QWEN, layers, output=True, parts=Part.DENSE | Part.EXPERTS),
        Share(ram, QWEN, layers, output=False, parts=Part.KV),
    ]
    found = decode_ceiling(shares, decode_start=4096, n_steps=1)
    assert found.first_kv_bytes == 4096 * 48 * QWEN_KV_LAYER
    assert found.tok_s == pytest.approx(1 / (QWEN.streamed_bytes() / 1000e9 + 4096 * 48 * QWEN_KV_LAYER / 90e9))


def test_experts_on_the_host_are_read_there() -> None:
    gpu, ram = Memory("VRAM", 1000 * GB), Memory("RAM", 90 * GB)
    shares = [
        Share(gpu, QWEN, range(12), output=False, parts=Part.DENSE | Part.KV),
        Share(ram, QWEN, range(12), output=False, parts=Part.EXPERTS),
        Share(gpu, QWEN, range(12, 48), output=True),
    ]
    on_host = 12 * QWEN_READ_EXPERTS
    on_gpu = QWEN.streamed_bytes() - on_host + 1024 * 48 * QWEN_KV_LAYER
    found = decode_ceiling(shares, decode_start=1024, n_steps=1)
    assert found.tok_s == pytest.approx(1 / (on_gpu / 1000e9 + on_host / 90e9))
    # Two sequences that choose at random read 128 (1 - (120/128)²) = 15.5 experts a layer.
    two = decode_ceiling(shares, decode_start=1024, n_steps=1, batch=2)
    on_host, kv = 15.5 / 8 * on_host, 2 * 1024 * 48 * QWEN_KV_LAYER
    on_gpu = QWEN.streamed_bytes() + 7.5 / 8 * 36 * QWEN_READ_EXPERTS - 12 * QWEN_READ_EXPERTS + kv
    assert 2 / two.expected_tok_s == pytest.approx(on_gpu / 1000e9 + on_host / 90e9)


def test_each_processor_computes_what_lies_beside_it() -> None:
    fast, slow = Memory("VRAM", 1e17, flops_s=100e12), Memory("RAM", 1e17, flops_s=1e12)
    parts = [
        Share(fast, QWEN, range(48), output=True, parts=Part.DENSE | Part.KV),
        Share(slow, QWEN, range(48), output=False, parts=Part.EXPERTS),
    ]
    experts = 48 * QWEN_READ_EXPERTS / 2  # parameters of a token
    everything = prefill_flops(QWEN.architecture, 512)
    seconds = (everything - 2 * 512 * experts) / 100e12 + 2 * 512 * experts / 1e12
    assert prefill_ceiling(parts, prompt=512) == pytest.approx(512 / seconds)


@often_enough
@given(names, st.data(), depths, batches)
def test_parts_that_lie_apart_read_and_compute_together_what_the_whole_does(
    name: str, data: st.DataObject, start: int, batch: int
) -> None:
    weights = MODELS[name]
    layers = range(weights.architecture.n_layers)
    first = data.draw(st.sampled_from([Part.DENSE, Part.DENSE | Part.EXPERTS, Part.DENSE | Part.KV]))
    for memory in (Memory("", 1e17, flops_s=1e9), Memory("", 100 * GB)):
        apart = [
            Share(memory, weights, layers, output=True, parts=first),
            Share(memory, weights, layers, output=False, parts=WHOLE & ~first),
        ]
        found = decode_ceiling(apart, decode_start=start, n_steps=4, batch=batch)
        together = decode_ceiling(whole(weights, memory), decode_start=start, n_steps=4, batch=batch)
        assert found.tok_s == pytest.approx(together.tok_s)
        assert found.expected_tok_s == pytest.approx(together.expected_tok_s)


def test_a_link_faster_than_its_memory_does_not_help() -> None:
    assert Memory("RAM", 90 * GB, link_bytes_s=900 * GB).read_bytes_s == 90 * GB


def test_experts() -> None:
    # 8 of 128 experts: one sequence reads 8, two that choose at random 128 (1 - (120/128)²) = 15.5.
    weights = MODELS["qwen3-30b-a3b"]
    one, two = (
        decode_ceiling(whole(weights, Memory("", 100 * GB)), decode_start=0, n_steps=1, batch=batch) for batch in (1, 2)
    )
    expert_bytes = 2 * 48 * 3 * 2048 * 768  # of all layers, for one expert a layer
    assert one.expected_tok_s == one.tok_s
    assert two.tok_s == pytest.approx(2 * one.tok_s)
    assert 2 * 100e9 / two.expected_tok_s == pytest.approx(two.streamed_bytes + 7.5 * expert_bytes)
    assert [expected_experts(weights.architecture, batch) for batch in (1, 2)] == [8, 15.5]


def test_a_large_batch_is_bound_by_its_flops() -> None:
    memory = Memory("", 1000 * GB, flops_s=50e12)
    shallow = {"decode_start": 0, "n_steps": 1}
    one = decode_ceiling(whole(LLAMA, memory), **shallow)
    many = decode_ceiling(whole(LLAMA, memory), batch=512, **shallow)
    assert one.bound == "memory"
    assert many.bound == "compute"
    assert many.tok_s == pytest.approx(50e12 / decode_flops(LLAMA.architecture, 0))  # 3300, whatever the batch


@often_enough
@given(names, st.integers(2, 3000), st.integers(0, 5000), batches)
def test_flops_of_every_step_are_those_of_its_context(name: str, window: int, start: int, batch: int) -> None:
    weights = MODELS[name]
    arch = with_windows(weights.architecture, window)
    slow = Memory("", 1e17, flops_s=1e9)  # bytes take no time here
    found = decode_ceiling(whole(in_bf16(arch), slow), decode_start=start, n_steps=40, batch=batch)
    flops = sum(decode_flops(arch, context, batch) for context in range(start, start + 40))
    assert found.tok_s == pytest.approx(batch * 40 / (flops / 1e9))


@often_enough
@given(names, st.data(), depths, batches)
def test_shares_compute_and_read_together_what_the_whole_does(
    name: str, data: st.DataObject, start: int, batch: int
) -> None:
    weights = MODELS[name]
    n_layers = weights.architecture.n_layers
    cut = data.draw(st.integers(0, n_layers))
    for memory in (Memory("", 1e17, flops_s=1e9), Memory("", 100 * GB)):
        shares = [
            Share(memory, weights, range(cut), output=False),
            Share(memory, weights, range(cut, n_layers), output=True),
        ]
        parts = decode_ceiling(shares, decode_start=start, n_steps=4, batch=batch)
        assert parts.tok_s == pytest.approx(rate(weights, memory, decode_start=start, n_steps=4, batch=batch))
    shares = [replace(share, memory=Memory("", 1e17, flops_s=1e12)) for share in shares]
    flops = prefill_flops(weights.architecture, 77, 5, batch)
    assert prefill_ceiling(shares, prompt=77, depth=5, batch=batch) == pytest.approx(77 * batch / (flops / 1e12))


@often_enough
@given(names, bandwidths, st.floats(1, 100), depths, batches)
def test_more_bandwidth_never_lowers_a_ceiling(
    name: str, bandwidth: float, factor: float, start: int, batch: int
) -> None:
    weights = MODELS[name]
    slow, fast = (Memory("", speed, flops_s=1e14) for speed in (bandwidth, bandwidth * factor))
    assert rate(weights, fast, decode_start=start, batch=batch) >= rate(weights, slow, decode_start=start, batch=batch)


@often_enough
@given(names, bandwidths, depths, st.integers(1, 100_000), batches)
def test_more_depth_never_raises_a_ceiling(name: str, bandwidth: float, start: int, more: int, batch: int) -> None:
    weights = MODELS[name]
    memory = Memory("", bandwidth, flops_s=1e14)
    shallow = rate(weights, memory, decode_start=start, batch=batch)
    assert rate(weights, memory, decode_start=start + more, batch=batch) <= shallow


@often_enough
@given(names, st.data(), bandwidths, bandwidths, depths)
def test_tiers_in_series_never_beat_the_fastest_tier_nor_lose_to_the_slowest(
    name: str, data: st.DataObject, one: float, other: float, start: int
) -> None:
    weights = MODELS[name]
    n_layers = weights.architecture.n_layers
    cut = data.draw(st.integers(0, n_layers))
    first, second = Memory("one", one), Memory("other", other)
    shares = [
        Share(first, weights, range(cut), output=False),
        Share(second, weights, range(cut, n_layers), output=True),
    ]
    both = decode_ceiling(shares, decode_start=start, n_steps=16).tok_s
    alone = [rate(weights, memory, decode_start=start) for memory in (first, second)]
    assert min(alone) * (1 - 1e-12) <= both <= max(alone) * (1 + 1e-12)


@often_enough
@given(names, st.data(), bandwidths, bandwidths, depths)
def test_tiers_in_parallel_are_as_slow_as_the_slowest_share(
    name: str, data: st.DataObject, one: float, other: float, start: int
) -> None:
    weights = MODELS[name]
    arch = weights.architecture
    cut = data.draw(st.integers(0, arch.n_layers))
    layers = range(cut), range(cut, arch.n_layers)
    speeds = one, other
    shares = [
        Share(Memory("", speed), weights, held, output=held is layers[1])
        for speed, held in zip(speeds, layers, strict=True)
    ]
    seconds = [
        (weights.streamed_bytes(1, held, output=held is layers[1]) + float(kv_read_bytes(arch, start, layers=held)))
        / speed
        for speed, held in zip(speeds, layers, strict=True)
    ]
    found = decode_ceiling(shares, decode_start=start, n_steps=1, parallel=True)
    assert found.tok_s == pytest.approx(1 / max(seconds))
    assert found.tok_s >= decode_ceiling(shares, decode_start=start, n_steps=1).tok_s


@often_enough
@given(names, bandwidths, depths, batches)
def test_the_fewest_experts_are_at_least_as_fast_as_the_expected(
    name: str, bandwidth: float, start: int, batch: int
) -> None:
    weights = MODELS[name]
    found = decode_ceiling(whole(weights, Memory("", bandwidth)), decode_start=start, n_steps=4, batch=batch)
    assert found.tok_s >= found.expected_tok_s * (1 - 1e-12)


@often_enough
@given(names, bandwidths, depths, batches)
def test_a_bigger_batch_never_lowers_the_rate_of_all_sequences(
    name: str, bandwidth: float, start: int, batch: int
) -> None:
    weights = MODELS[name]
    smaller, bigger = (
        decode_ceiling(whole(weights, Memory("", bandwidth)), decode_start=start, n_steps=4, batch=size)
        for size in (batch, batch + 1)
    )
    assert bigger.tok_s >= smaller.tok_s * (1 - 1e-12)
    assert bigger.expected_tok_s >= smaller.expected_tok_s * (1 - 1e-12)


def test_prefill_is_bound_by_flops_or_by_one_reading_of_the_weights() -> None:
    memory = Memory("", 1000 * GB, flops_s=100e12)
    flops = prefill_flops(LLAMA.architecture, 4096)  # 6.1e13: 0.6 s
    assert prefill_ceiling(whole(LLAMA, memory), prompt=4096) == pytest.approx(4096 * 100e12 / flops)
    assert prefill_ceiling(whole(LLAMA, memory), prompt=1) == pytest.approx(1000e9 / LLAMA_STREAMED_BYTES)
    with_depth = prefill_ceiling(whole(LLAMA, memory), prompt=1, depth=8192)
    assert with_depth == pytest.approx(1000e9 / (LLAMA_STREAMED_BYTES + 2**30))
    assert prefill_ceiling(whole(LLAMA, Memory("", 1000 * GB)), prompt=4096) is None


def test_series_and_parallel_by_step() -> None:
    times = [np.array([1.0, 4.0]), np.array([2.0, 3.0])]
    assert in_series(times).tolist() == [3, 7]
    assert in_parallel(times).tolist() == [2, 4]


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1792])  # 1792: GB/s where bytes are meant
def test_no_memory_has_such_a_bandwidth(value: float) -> None:
    with pytest.raises(ValueError, match="bandwidth_bytes_s of VRAM"):
        Memory("VRAM", value)
    with pytest.raises(ValueError, match="link_bytes_s of VRAM"):
        Memory("VRAM", 1e12, link_bytes_s=value)
    with pytest.raises(ValueError, match="flops_s of VRAM"):
        Memory("VRAM", 1e12, flops_s=value)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"decode_start": -1}, "context"),
        ({"n_steps": 0}, "n_steps"),
        ({"n_steps": 10**12}, "n_steps"),
        ({"batch": 0}, "batch"),
        ({"k_element_bytes": math.nan}, "k_element_bytes"),
        ({"v_element_bytes": 0}, "v_element_bytes"),
    ],
)
def test_absurd_numbers_are_named(wrong: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        decode_ceiling(whole(LLAMA, Memory("", 1e11)), **({"decode_start": 0, "n_steps": 1} | wrong))
    if name not in ("n_steps", "context"):
        with pytest.raises(ValueError, match=name):
            prefill_ceiling(whole(LLAMA, Memory("", 1e11)), prompt=1, **wrong)


def test_every_layer_lies_on_one_memory() -> None:
    memory = Memory("", 1e11)

    def ceiling(*shares: tuple[range, bool]) -> None:
        held = [Share(memory, LLAMA, layers, output=output) for layers, output in shares]
        decode_ceiling(held, decode_start=0, n_steps=1)

    with pytest.raises(ValueError, match="no memory"):
        ceiling()
    with pytest.raises(ValueError, match="32 layers once"):
        ceiling((range(31), True))
    with pytest.raises(ValueError, match="32 layers once"):
        ceiling((range(17), True), (range(16, 32), False))
    with pytest.raises(ValueError, match="output layer"):
        ceiling((range(16), True), (range(16, 32), True))
    with pytest.raises(ValueError, match="output layer"):
        ceiling((range(32), False))


def test_the_output_layer_lies_with_dense_tensors() -> None:
    with pytest.raises(ValueError, match="dense"):
        Share(Memory("", 1e11), LLAMA, range(32), output=True, parts=Part.EXPERTS)


@pytest.mark.parametrize("part", list(WHOLE))
def test_every_part_of_a_layer_lies_on_one_memory(part: Part) -> None:
    memory = Memory("", 1e11)
    name = str(part.name).lower()
    for again in (Part(0), part):  # nowhere, and twice
        shares = [
            Share(memory, LLAMA, range(32), output=False, parts=WHOLE & ~part),
            Share(memory, LLAMA, range(0), output=True),
            Share(memory, LLAMA, range(16), output=False, parts=part),
            Share(memory, LLAMA, range(16, 31), output=False, parts=part),
            Share(memory, LLAMA, range(15, 17), output=False, parts=again),
        ]
        with pytest.raises(ValueError, match=rf"\({name}\), not each of 32 layers once"):
            decode_ceiling(shares, decode_start=0, n_steps=1)


def test_a_layer_without_experts_beside_layers_with_them() -> None:
    # The first layer dense, as in DeepSeek: its network is read whole, once.
    attention = Attention(2, 1, 4, 4)
    dense, sparse = FeedForward(64), FeedForward(16, n_experts=8, n_experts_used=2, d_expert=8)
    arch = Architecture("toy", 8, 10, True, 100, (Layer(attention, dense, 16), Layer(attention, sparse, 16)), 8)
    found = decode_ceiling(whole(in_bf16(arch), Memory("", 1e9)), decode_start=0, n_steps=1)
    attention_elements = 8 * 8 + 2 * 8 * 4 + 8 * 8
    routed = 8 * 8 + 2 * 3 * 8 * 8  # router, two experts
    elements = 2 * (attention_elements + 16) + 3 * 8 * 64 + 3 * 8 * 16 + routed + 8 + 80
    assert found.streamed_bytes == 2 * elements
