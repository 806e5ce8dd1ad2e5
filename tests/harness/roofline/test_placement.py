"""What fits where, against a pencil and against adding up byte by byte."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.models.presets import PRESETS
from harness.roofline.ceiling import Memory, decode_ceiling
from harness.roofline.hf_config import from_hf_config
from harness.roofline.nominal import nominal_weights
from harness.roofline.parts import WHOLE, Part
from harness.roofline.placement import fits, gpu_layers, max_context, needs, places, split
from harness.roofline.weights import Weights
from harness.roofline.workspace import LLAMA_CPP, Engine, Torch

KINDS = ("llama-3.1-8b", "gpt2", "qwen3-30b-a3b", "gemma-3-4b", "gemma-4-26b-a4b", "deepseek-v3", "qwen3.6-27b")
MODELS = {name: nominal_weights(from_hf_config(PRESETS[name]), "bf16") for name in KINDS}
LLAMA = MODELS["llama-3.1-8b"]
LLAMA_LAYER_BYTES = 2 * 218_112_000  # Q and O 4096², K and V 4096 x 1024, three of 4096 x 14 336, two norms
LLAMA_OUTPUT_BYTES = 2 * (128_256 * 4096 + 4096)
GPU, HOST = Memory("VRAM", 1000e9), Memory("RAM", 90e9)

names = st.sampled_from(KINDS)
engines = st.sampled_from([LLAMA_CPP, Torch(512)])
batches = st.integers(1, 16)
element_bytes = st.sampled_from([2, 34 / 32, 18 / 32])
often_enough = settings(max_examples=60, deadline=None)


def test_needs_of_llama_at_8k() -> None:
    found = needs(LLAMA, context=8192)
    assert found.weight_bytes == 2 * 8_030_261_248
    assert found.kv_bytes == 2**30
    # Logits and two vectors for 512 tokens in float32, and the logits that are handed out.
    assert found.workspace_bytes == 512 * 4 * (128_256 + 2 * 4096) + 4 * 128_256
    assert found.total_bytes == found.weight_bytes + found.kv_bytes + found.workspace_bytes
    assert fits(found, found.total_bytes)
    assert not fits(found, found.total_bytes - 1)


def test_llama_on_a_24_gb_card() -> None:
    # 24e9 less 16.06e9 of weights and 0.28e9 of workspace are 7.66e9: 228 blocks of 256 tokens at 131 072 B each.
    full = needs(LLAMA, context=8192)
    room = 24_000_000_000 - full.weight_bytes - full.workspace_bytes
    assert max_context(LLAMA, 24e9) == room // (256 * 131_072) * 256 == 58_368
    assert max_context(LLAMA, 80e9) == 131_072  # what it was made for
    assert max_context(LLAMA, 16e9) is None
    # q8_0: 34 bytes where f16 takes 64.
    assert max_context(LLAMA, 24e9, k_element_bytes=34 / 32) == room * 64 // (34 * 256 * 131_072) * 256


def test_a_model_without_a_limit() -> None:
    unlimited = Weights(replace(LLAMA.architecture, max_context=None), LLAMA.parts)
    assert max_context(unlimited, 80e9) == max_context(unlimited, 80e9 + 1000) > 131_072


@often_enough
@given(names, engines, st.floats(0.5, 1.5), batches, element_bytes)
def test_the_longest_context_fits_and_one_token_more_does_not(
    name: str, engine: Engine, share: float, batch: int, cached: float
) -> None:
    weights = MODELS[name]
    limit = weights.architecture.max_context
    assert limit is not None
    capacity = share * needs(weights, context=limit // 2, batch=batch, engine=engine).total_bytes

    def fitting(context: int) -> bool:
        return fits(needs(weights, context=context, batch=batch, k_element_bytes=cached, engine=engine), capacity)

    longest = max_context(weights, capacity, batch=batch, k_element_bytes=cached, engine=engine)
    if longest is None:
        assert not fitting(1)
    else:
        assert fitting(longest)
        assert longest == limit or not fitting(longest + 1)


@often_enough
@given(names, engines, st.integers(1, 100_000), st.integers(0, 100_000), batches)
def test_a_longer_context_and_a_bigger_batch_never_need_less(
    name: str, engine: Engine, context: int, more: int, batch: int
) -> None:
    weights = MODELS[name]
    base = needs(weights, context=context, batch=batch, engine=engine).total_bytes
    assert needs(weights, context=context + more, batch=batch, engine=engine).total_bytes >= base
    assert needs(weights, context=context, batch=batch + 1, engine=engine).total_bytes >= base


def test_the_output_layer_goes_to_the_gpu_first_then_the_last_layers() -> None:
    workspace = needs(LLAMA, context=8192).workspace_bytes
    layer = LLAMA_LAYER_BYTES + 2**30 // 32
    assert gpu_layers(LLAMA, workspace + LLAMA_OUTPUT_BYTES - 1, context=8192) == 0
    assert gpu_layers(LLAMA, workspace + LLAMA_OUTPUT_BYTES, context=8192) == 1
    assert gpu_layers(LLAMA, workspace + LLAMA_OUTPUT_BYTES + 7 * layer, context=8192) == 8
    assert gpu_layers(LLAMA, workspace + LLAMA_OUTPUT_BYTES + 8 * layer - 1, context=8192) == 8
    assert gpu_layers(LLAMA, 1e12, context=8192) == 33
    # The input embedding stays on the host: all layers fit where the whole model does not.
    all_layers = workspace + LLAMA_OUTPUT_BYTES + 32 * layer
    assert gpu_layers(LLAMA, all_layers, context=8192) == 33
    assert needs(LLAMA, context=8192).total_bytes - all_layers == 2 * 128_256 * 4096


@often_enough
@given(names, st.floats(0, 1.2), st.integers(1, 50_000), batches)
def test_so_many_gpu_layers_fit_and_one_more_does_not(name: str, share: float, context: int, batch: int) -> None:
    weights = MODELS[name]
    arch = weights.architecture
    capacity = share * needs(weights, context=context, batch=batch).total_bytes

    def bytes_on_gpu(n_gpu_layers: int) -> int:
        workspace = LLAMA_CPP.workspace_bytes(arch, context, batch)
        total = 0
        for held in split(weights, n_gpu_layers, GPU, HOST):
            if held.memory is GPU:
                total += workspace + (weights.output_bytes if held.output else 0)
                total += sum(weights.layer_bytes(layer) for layer in held.layers)
                total += LLAMA_CPP.kv_cache_bytes(arch, context, batch, layers=held.layers)
        return total

    found = gpu_layers(weights, capacity, context=context, batch=batch)
    assert bytes_on_gpu(found) <= capacity
    assert found == arch.n_layers + 1 or bytes_on_gpu(found + 1) > capacity


@pytest.mark.parametrize(
    ("n_gpu_layers", "host", "gpu"),
    [
        (0, (0, 32, True), None),
        (1, (0, 32, False), (32, 32, True)),
        (2, (0, 31, False), (31, 32, True)),
        (32, (0, 1, False), (1, 32, True)),
        (33, None, (0, 32, True)),
        (99, None, (0, 32, True)),
    ],
)
def test_split(n_gpu_layers: int, host: tuple[int, int, bool] | None, gpu: tuple[int, int, bool] | None) -> None:
    shares = split(LLAMA, n_gpu_layers, GPU, HOST)
    found = {share.memory.name: (share.layers.start, share.layers.stop, share.output) for share in shares}
    assert found.get("RAM") == host
    assert found.get("VRAM") == gpu


def test_experts_and_kv_cache_may_stay_on_the_host() -> None:
    # Of 48 layers 32 are on the GPU, 16 to 47, and of these the experts of 16 to 23 stay on the host.
    found = {
        (place.on_gpu, place.layers, place.output, place.parts)
        for place in places(48, 33, n_cpu_moe=24, kv_offload=False)
    }
    assert found == {
        (False, range(16), False, WHOLE),
        (True, range(16, 24), False, Part.DENSE),
        (False, range(16, 24), False, Part.EXPERTS),
        (True, range(24, 48), True, Part.DENSE | Part.EXPERTS),
        (False, range(16, 48), False, Part.KV),
    }
    assert places(48, 33, n_cpu_moe=16) == places(48, 33), "these experts are on the host with their layers"
    # All experts on the host, the output layer on the GPU.
    everywhere = places(48, 49, n_cpu_moe=99)
    assert [place.output for place in everywhere if place.on_gpu] == [False, True]
    assert [place.layers for place in everywhere if Part.EXPERTS in place.parts and place.layers] == [range(48)]


@often_enough
@given(names, st.integers(0, 70), st.integers(0, 70), st.booleans())
def test_wherever_the_parts_lie_a_step_reads_all_of_them(
    name: str, n_gpu_layers: int, n_cpu_moe: int, kv_offload: bool
) -> None:
    weights, same = MODELS[name], Memory("", 100e9)
    apart = split(weights, n_gpu_layers, same, same, n_cpu_moe=n_cpu_moe, kv_offload=kv_offload)
    found, whole = (
        decode_ceiling(shares, decode_start=512, n_steps=4) for shares in (apart, split(weights, 0, same, same))
    )
    read, read_of_whole = (each.streamed_bytes + each.mean_kv_bytes for each in (found, whole))
    assert read == pytest.approx(read_of_whole)
    assert found.tok_s == pytest.approx(whole.tok_s)


def test_what_stays_on_the_host_leaves_room_for_layers() -> None:
    qwen = MODELS["qwen3-30b-a3b"]
    experts = 2 * 128 * 3 * 2048 * 768  # bytes a layer
    kv = 2 * 2 * 4 * 128 * 8192  # of 8192 tokens
    all_but_one = 48  # with the output layer
    capacity = needs(qwen, context=8192).workspace_bytes + qwen.output_bytes
    capacity += sum(qwen.layer_bytes(layer) for layer in range(1, 48)) + 47 * kv  # all but the first layer
    assert gpu_layers(qwen, capacity, context=8192) == all_but_one
    assert gpu_layers(qwen, capacity - 47 * kv, context=8192, kv_offload=False) == all_but_one
    assert gpu_layers(qwen, capacity - 47 * kv - 1, context=8192, kv_offload=False) == all_but_one - 1
    # The experts of the layers 0 to 9 stay: nine of them are among the 47.
    assert gpu_layers(qwen, capacity - 9 * experts, context=8192, n_cpu_moe=10) == all_but_one
    assert gpu_layers(qwen, capacity - 9 * experts - 1, context=8192, n_cpu_moe=10) == all_but_one - 1


@often_enough
@given(names, st.data())
def test_every_layer_on_the_gpu_makes_decoding_faster(name: str, data: st.DataObject) -> None:
    weights = MODELS[name]
    n_gpu_layers = data.draw(st.integers(0, weights.architecture.n_layers))
    fewer, more = (
        decode_ceiling(split(weights, count, GPU, HOST), decode_start=512, n_steps=4).tok_s
        for count in (n_gpu_layers, n_gpu_layers + 1)
    )
    assert more > fewer


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf])
def test_absurd_numbers_are_named(wrong: float) -> None:
    with pytest.raises(ValueError, match="capacity_bytes"):
        max_context(LLAMA, wrong)
    with pytest.raises(ValueError, match="capacity_bytes"):
        gpu_layers(LLAMA, wrong, context=1)
    with pytest.raises(ValueError, match="capacity_bytes"):
        fits(needs(LLAMA, context=1), wrong)
    with pytest.raises(ValueError, match="k_element_bytes"):
        needs(LLAMA, context=1, k_element_bytes=wrong)
    with pytest.raises(ValueError, match="context"):
        needs(LLAMA, context=-5)
    with pytest.raises(ValueError, match="batch"):
        gpu_layers(LLAMA, 1e9, context=1, batch=0)
    with pytest.raises(ValueError, match="n_gpu_layers"):
        split(LLAMA, -1, GPU, HOST)
