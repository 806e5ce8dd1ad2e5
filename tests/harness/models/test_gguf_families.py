"""Configurations that llama.cpp would compute differently are refused, and RoPE's factors are Llama 3.1's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from harness.errors import UserError
from harness.models.gguf_families import FAMILIES, family_of, rope_factors
from harness.models.presets import PRESETS
from harness.models.tensors import SYNTHESISABLE

CLASSES = {
    "LlamaForCausalLM": transformers.LlamaConfig,
    "MistralForCausalLM": transformers.MistralConfig,
    "Qwen2ForCausalLM": transformers.Qwen2Config,
    "Qwen3ForCausalLM": transformers.Qwen3Config,
    "Qwen3MoeForCausalLM": transformers.Qwen3MoeConfig,
    "GPT2LMHeadModel": transformers.GPT2Config,
}
# What each family needs beside transformers' defaults.
NEEDED: dict[str, dict[str, Any]] = {
    "MistralForCausalLM": {"sliding_window": None},
    "Qwen3MoeForCausalLM": {"norm_topk_prob": True},
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def config_json(architecture: str, **changes: Any) -> dict[str, Any]:
    """As transformers writes it, then changed by hand."""
    config = CLASSES[architecture](architectures=[architecture], **NEEDED.get(architecture, {}))
    return json.loads(config.to_json_string(use_diff=False)) | changes


def check(config: dict[str, Any]) -> None:
    family = family_of(config)
    family.hyperparameters(config)
    rope_factors(config, family)


def test_every_family_is_tested() -> None:
    assert CLASSES.keys() == FAMILIES.keys()


@pytest.mark.parametrize("architecture", CLASSES)
def test_the_default_configuration_of_each_family_passes(architecture: str) -> None:
    check(config_json(architecture))


@pytest.mark.parametrize("preset", [name for name, config in PRESETS.items() if config["model_type"] in SYNTHESISABLE])
def test_every_preset_that_can_run_passes(preset: str) -> None:
    check(PRESETS[preset])


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("LlamaForCausalLM", "architectures", ["GemmaForCausalLM"]),
        ("LlamaForCausalLM", "architectures", ["LlamaForSequenceClassification"]),
        ("LlamaForCausalLM", "architectures", None),
        ("LlamaForCausalLM", "hidden_act", "gelu"),
        ("LlamaForCausalLM", "quantization_config", {"quant_method": "fp8"}),
        ("LlamaForCausalLM", "partial_rotary_factor", 0.5),
        ("MistralForCausalLM", "sliding_window", 4096),
        ("Qwen2ForCausalLM", "use_sliding_window", True),
        ("Qwen2ForCausalLM", "head_dim", 64),
        ("Qwen3ForCausalLM", "attention_bias", True),
        ("Qwen3MoeForCausalLM", "norm_topk_prob", False),
        ("Qwen3MoeForCausalLM", "decoder_sparse_step", 2),
        ("Qwen3MoeForCausalLM", "mlp_only_layers", [0]),
        ("GPT2LMHeadModel", "activation_function", "relu"),
        ("GPT2LMHeadModel", "scale_attn_weights", False),
        ("GPT2LMHeadModel", "scale_attn_by_inverse_layer_idx", True),
        ("GPT2LMHeadModel", "add_cross_attention", True),
    ],
)
def test_what_llama_cpp_would_compute_differently_is_refused(architecture: str, key: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"{key}.*convert_hf_to_gguf\.py"):
        check(config_json(architecture, **{key: value}))


@pytest.mark.parametrize(
    ("architecture", "rope"),
    [
        ("LlamaForCausalLM", {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}),
        ("LlamaForCausalLM", {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}),
        ("Qwen2ForCausalLM", LLAMA3),  # llama.cpp's qwen2 reads no factors
        ("Qwen3ForCausalLM", LLAMA3),
    ],
)
def test_a_scaling_of_rope_that_the_file_cannot_carry_is_refused(architecture: str, rope: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"rope_type = '{rope['rope_type']}'"):
        check(config_json(architecture, rope_parameters=rope))


@pytest.mark.parametrize(
    ("architecture", "key"), [("Qwen3MoeForCausalLM", "norm_topk_prob"), ("MistralForCausalLM", "sliding_window")]
)
def test_a_missing_key_means_what_transformers_takes_it_for(architecture: str, key: str) -> None:
    config = config_json(architecture)
    del config[key]
    with pytest.raises(UserError, match=key):
        check(config)


@pytest.mark.parametrize("architecture", CLASSES)
def test_a_missing_size_is_named(architecture: str) -> None:
    config = config_json(architecture)
    del config["vocab_size"]
    with pytest.raises(UserError, match="vocab_size is missing"):
        check(config)


def test_a_window_as_long_as_the_context_is_none() -> None:
    check(config_json("MistralForCausalLM", sliding_window=4096, max_position_embeddings=4096))


def test_the_older_spelling_of_rope() -> None:
    """Llama 3.1's published config.json: rope_theta apart, and no rope_parameters."""
    config = config_json("LlamaForCausalLM", rope_theta=500_000.0, rope_scaling=LLAMA3, head_dim=128)
    del config["rope_parameters"]
    family = family_of(config)
    assert family.hyperparameters(config)["rope.freq_base"] == 500_000.0
    factors = rope_factors(config, family)
    assert factors is not None
    assert factors[0] == 1  # wavelength 2π: kept
    assert factors[-1] == 8  # wavelength 2.6 million: stretched by the factor


@given(
    theta=st.floats(1e3, 1e7),
    factor=st.floats(1, 64),
    low=st.floats(0.5, 2),
    above=st.floats(0.5, 8),
    original=st.integers(32, 16_384),
    head_dim=st.sampled_from([32, 64, 128]),
)
def test_the_factors_are_those_of_transformers(
    theta: float, factor: float, low: float, above: float, original: int, head_dim: int
) -> None:
    rope = LLAMA3 | {
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": low + above,
        "original_max_position_embeddings": original,
    }
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](
        transformers.LlamaConfig(rope_parameters=rope, head_dim=head_dim, max_position_embeddings=2**20), "cpu"
    )
    plain = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    config = config_json("LlamaForCausalLM", rope_parameters=rope, head_dim=head_dim)
    factors = rope_factors(config, family_of(config))
    np.testing.assert_allclose(factors, plain / scaled.numpy(), rtol=1e-4)
