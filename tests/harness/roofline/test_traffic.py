"""Bytes and FLOPs, against a pencil and against the models that transformers builds."""

import dataclasses
import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from harness.models.presets import PRESETS
from harness.roofline.architecture import Architecture, from_hf_config
from harness.roofline.traffic import kv_bytes_per_token, parameter_count, prefill_flops, streamed_parameters

_ARCHITECTURES = {name: from_hf_config(config) for name, config in PRESETS.items()}


@functools.cache
def _on_meta(name: str) -> PreTrainedModel:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**PRESETS[name]))


@pytest.mark.parametrize(
    ("name", "bytes_per_token"), [("llama-3.1-8b", 131_072), ("llama-2-7b", 524_288), ("qwen3-30b-a3b", 98_304)]
)
def test_kv_bytes_per_token(name: str, bytes_per_token: int) -> None:
    assert kv_bytes_per_token(_ARCHITECTURES[name], 2) == bytes_per_token


def test_kv_cache_sizes_that_people_know() -> None:
    llama31, llama2 = _ARCHITECTURES["llama-3.1-8b"], _ARCHITECTURES["llama-2-7b"]
    assert 8 * 1024 * kv_bytes_per_token(llama31, 2) == 2**30
    assert 128 * 1024 * kv_bytes_per_token(llama31, 2) == 16 * 2**30
    assert 4096 * kv_bytes_per_token(llama2, 2) == 2 * 2**30
    # q8_0 holds 32 elements in 34 bytes.
    assert kv_bytes_per_token(llama31, 34 / 32) == 131_072 * 34 / 64


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_count_is_that_of_transformers(name: str) -> None:
    assert parameter_count(_ARCHITECTURES[name]) == _on_meta(name).num_parameters()


def test_parameter_count_of_qwen2() -> None:
    config = PRESETS["qwen3-0.6b"] | {"model_type": "qwen2"}
    del config["head_dim"], config["attention_bias"]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert parameter_count(from_hf_config(config)) == model.num_parameters()


@pytest.mark.parametrize("name", PRESETS)
def test_streamed_parameters_are_those_of_the_tensors_a_step_reads(name: str) -> None:
    arch = _ARCHITECTURES[name]
    sizes = {parameter: tensor.numel() for parameter, tensor in _on_meta(name).named_parameters()}
    experts = sum(size for parameter, size in sizes.items() if ".experts." in parameter)
    looked_up = sizes.get("transformer.wpe.weight", 0)
    if not arch.tied_embeddings:
        looked_up += sizes["model.embed_tokens.weight"]
    idle = experts * (arch.n_experts - arch.n_experts_used) // arch.n_experts if experts else 0
    assert streamed_parameters(arch) == sum(sizes.values()) - looked_up - idle


def test_streamed_parameters_of_the_mixture() -> None:
    # The "A3B" of the name: about three billion parameters a token.
    assert 2.9e9 < streamed_parameters(_ARCHITECTURES["qwen3-30b-a3b"]) < 3.4e9


@pytest.mark.parametrize(
    ("name", "smaller"),
    [
        ("gpt2", {"n_layer": 2, "n_embd": 96}),
        ("llama-3.1-8b", {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "vocab_size": 999}),
        ("qwen3-0.6b", {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "vocab_size": 999}),
    ],
)
def test_prefill_flops_are_those_that_torch_counts(name: str, smaller: dict[str, int]) -> None:
    prompt, batch = 64, 2
    config = PRESETS[name] | smaller
    # Eager attention computes the whole square of scores, where causal attention needs half of it.
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), attn_implementation="eager")
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.zeros((batch, prompt), dtype=torch.long), logits_to_keep=1, use_cache=False)
    arch = from_hf_config(config)
    unneeded = batch * 4 * arch.n_layers * arch.n_heads * arch.head_dim * (prompt**2 - prompt * (prompt + 1) // 2)
    # torch counts matrix products only; norms and biases are within the tolerance.
    assert prefill_flops(arch, prompt, batch=batch) == pytest.approx(counter.get_total_flops() - unneeded, rel=0.01)


@given(
    name=st.sampled_from(list(PRESETS)),
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
    assert parts - whole == 2 * batch * arch.vocab_size * arch.d_model


@given(st.integers(1, 64))
def test_using_every_expert_streams_every_expert(n_experts: int) -> None:
    arch: Architecture = dataclasses.replace(
        _ARCHITECTURES["qwen3-30b-a3b"], n_experts=n_experts, n_experts_used=n_experts
    )
    assert streamed_parameters(arch) == parameter_count(arch) - arch.vocab_size * arch.d_model
