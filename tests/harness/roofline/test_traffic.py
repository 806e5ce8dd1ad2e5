"""Bytes and FLOPs, against a pencil and against what torch counts."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from harness.models.presets import PRESETS
from harness.roofline.architecture import Architecture, Attention
from harness.roofline.hf_config import from_hf_config
from harness.roofline.parts import WHOLE, Part
from harness.roofline.traffic import (
    decode_flops,
    kv_bytes_per_token,
    kv_cache_bytes,
    kv_read_bytes,
    parameter_count,
    prefill_flops,
    streamed_parameters,
)

_ARCHITECTURES = {name: from_hf_config(config) for name, config in PRESETS.items()}
_NAMES = st.sampled_from(sorted(_ARCHITECTURES))


def test_cache_sizes_that_people_know() -> None:
    llama31, llama2 = _ARCHITECTURES["llama-3.1-8b"], _ARCHITECTURES["llama-2-7b"]
    assert kv_cache_bytes(llama31, 8 * 1024) == 2**30
    assert kv_cache_bytes(llama31, 128 * 1024) == 16 * 2**30
    assert kv_cache_bytes(llama2, 4096) == 2 * 2**30
    assert kv_cache_bytes(llama2, 32 * 1024) == 16 * 2**30
    assert kv_cache_bytes(llama2, 128 * 1024) == 64 * 2**30
    # q8_0 holds 32 elements in 34 bytes.
    assert kv_bytes_per_token(llama31, 34 / 32) == 131_072 * 34 / 64
    assert kv_bytes_per_token(llama31, 2, 1) == 131_072 * 3 / 4


_SMALL = {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "vocab_size": 999}
_SMALL_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
_SMALL_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 192}


@pytest.mark.parametrize(
    ("name", "smaller"),
    [
        ("gpt2", {"n_layer": 2, "n_embd": 96}),
        ("llama-3.1-8b", _SMALL),
        ("qwen3-0.6b", _SMALL),
        ("qwen3-30b-a3b", _SMALL | _SMALL_HEADS | _SMALL_EXPERTS),
        ("gemma-3-4b", _SMALL | _SMALL_HEADS | {"sliding_window": 16, "sliding_window_pattern": 2}),
        (
            "deepseek-v3",
            _SMALL
            | {"num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 128, "q_lora_rank": 96}
            | {
                "first_k_dense_replace": 1,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "n_group": 1,
                "topk_group": 1,
            }
            | {"moe_intermediate_size": 192},
        ),
    ],
)
def test_prefill_flops_are_those_that_torch_counts(name: str, smaller: dict[str, int]) -> None:
    prompt, batch = 64, 2
    config = {key: value for key, value in (PRESETS[name] | smaller).items() if key != "quantization_config"}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = AutoModelForCausalLM.from_config(
        # Eager attention computes the whole square of scores, where causal attention needs half of it or less.
        AutoConfig.for_model(**config | special),
        attn_implementation="eager",
        experts_implementation="eager",
    )
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.zeros((batch, prompt), dtype=torch.long), logits_to_keep=1, use_cache=False)
    arch = from_hf_config(config)
    unneeded = 0
    for layer in arch.layers:
        assert isinstance(layer.mixer, Attention)
        seen = sum(min(query, layer.mixer.window or query) for query in range(1, prompt + 1))
        unneeded += 2 * layer.mixer.n_heads * (layer.mixer.head_dim + layer.mixer.value_dim) * (prompt**2 - seen)
    # torch counts matrix products only; norms and biases are within the tolerance.
    expected = counter.get_total_flops() - batch * unneeded
    assert prefill_flops(arch, prompt, batch=batch) == pytest.approx(expected, rel=0.01)


def test_a_decode_step_of_latent_attention_leaves_the_cache_compressed() -> None:
    # DeepSeek-V3 at 4096 tokens: of each of 4097 keys 128 heads read 512 + 64 elements, then 512 as values.
    arch = _ARCHITECTURES["deepseek-v3"]
    attention = 61 * 128 * 2 * (512 + 64 + 512) * 4097
    assert decode_flops(arch, 4096) == 2 * streamed_parameters(arch) + attention
    # A prefill from nothing uncompresses: 192 + 128 elements of each pair.
    pairs = 1000 * 1001 // 2
    head = arch.vocab_size * arch.d_model
    body = 2 * 1000 * (streamed_parameters(arch) - head) + 2 * head
    assert prefill_flops(arch, 1000) == body + 61 * 128 * 2 * (192 + 128) * pairs


def _is_plain(arch: Architecture) -> bool:
    """Attention whose cost is the same however a prompt is cut."""
    return all(not isinstance(layer.mixer, Attention) or layer.mixer.latent is None for layer in arch.layers)


@given(
    name=_NAMES,
    prompt=st.integers(1, 4096),
    more=st.integers(1, 4096),
    depth=st.integers(0, 8192),
    batch=st.integers(1, 16),
)
def test_a_prefill_in_two_parts_costs_the_same_but_for_one_more_head(
    name: str, prompt: int, more: int, depth: int, batch: int
) -> None:
    arch = _ARCHITECTURES[name]
    whole = prefill_flops(arch, prompt + more, depth, batch)
    parts = prefill_flops(arch, prompt, depth, batch) + prefill_flops(arch, more, depth + prompt, batch)
    if _is_plain(arch):
        assert parts - whole == 2 * batch * arch.vocab_size * arch.d_model
    else:
        assert prefill_flops(arch, more, depth + prompt, batch) >= prefill_flops(arch, more, depth, batch)


@given(name=_NAMES, contexts=st.lists(st.integers(0, 200_000), min_size=1, max_size=5))
def test_a_step_reads_what_is_kept_or_more(name: str, contexts: list[int]) -> None:
    arch = _ARCHITECTURES[name]
    read = kv_read_bytes(arch, contexts)
    assert read.shape == (len(contexts),)
    assert (read >= [kv_cache_bytes(arch, context) for context in contexts]).all()
    assert (np.diff(kv_read_bytes(arch, sorted(contexts))) >= 0).all()


@given(name=_NAMES, context=st.integers(0, 200_000), cut=st.integers(0, 100))
def test_layers_add_up(name: str, context: int, cut: int) -> None:
    arch = _ARCHITECTURES[name]
    first, last = range(min(cut, arch.n_layers)), range(min(cut, arch.n_layers), arch.n_layers)
    parts = kv_cache_bytes(arch, context, layers=first) + kv_cache_bytes(arch, context, layers=last)
    assert parts == pytest.approx(kv_cache_bytes(arch, context))


def test_a_layer_that_shares_a_cache_reads_it_and_keeps_none() -> None:
    base = _ARCHITECTURES["llama-3.1-8b"]
    shared = dataclasses.replace(base.layers[0].mixer, shares_cache=True)
    sharing = dataclasses.replace(base.layers[0], mixer=shared)
    arch = dataclasses.replace(base, layers=base.layers[:16] + (sharing,) * 16)
    assert kv_cache_bytes(arch, 1000) == kv_cache_bytes(base, 1000) / 2
    assert kv_read_bytes(arch, 1000) == kv_read_bytes(base, 1000)
    assert parameter_count(base) - parameter_count(arch) == 16 * 2 * 4096 * 1024


@given(st.integers(1, 64))
def test_using_every_expert_streams_every_expert(n_experts: int) -> None:
    base = _ARCHITECTURES["gpt-oss-20b"]
    network = dataclasses.replace(base.layers[0].feed_forward, n_experts=n_experts, n_experts_used=n_experts)
    arch = dataclasses.replace(base, layers=(dataclasses.replace(base.layers[0], feed_forward=network),) * 2)
    assert streamed_parameters(arch) == parameter_count(arch) - arch.vocab_size * arch.d_model


@given(_NAMES, st.integers(1, 4096), st.integers(0, 4096), st.integers(1, 8))
def test_the_flops_of_the_parts_are_those_of_the_whole(name: str, prompt: int, depth: int, batch: int) -> None:
    arch = _ARCHITECTURES[name]
    parts = {part: prefill_flops(arch, prompt, depth, batch, part) for part in WHOLE}
    assert sum(parts.values()) == prefill_flops(arch, prompt, depth, batch)
    assert parts[Part.DENSE] > 0
    assert (parts[Part.EXPERTS] > 0) == arch.is_mixture


def test_the_flops_of_experts_are_two_a_weight_that_is_read() -> None:
    # 8 of 128 experts in each of 48 layers, three matrices of 2048 × 768.
    arch = _ARCHITECTURES["qwen3-30b-a3b"]
    assert prefill_flops(arch, 100, 0, 1, Part.EXPERTS) == 2 * 100 * 48 * 8 * 3 * 2048 * 768
