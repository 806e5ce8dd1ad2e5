"""Configurations that llama.cpp would compute differently are refused, and RoPE's factors are Llama 3.1's."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from harness.errors import UserError
from harness.models.gguf_export.families import FAMILIES, family_of
from harness.models.gguf_export.rope import rope_keys, rope_tensors
from harness.models.presets import PRESETS
from harness.models.tensors import SYNTHESISABLE
from harness.roofline.hf_config import from_hf_config

CLASSES = {
    "LlamaForCausalLM": transformers.LlamaConfig,
    "MistralForCausalLM": transformers.MistralConfig,
    "Qwen2ForCausalLM": transformers.Qwen2Config,
    "Qwen3ForCausalLM": transformers.Qwen3Config,
    "Qwen3MoeForCausalLM": transformers.Qwen3MoeConfig,
    "MixtralForCausalLM": transformers.MixtralConfig,
    "GemmaForCausalLM": transformers.GemmaConfig,
    "Gemma2ForCausalLM": transformers.Gemma2Config,
    "Gemma3ForCausalLM": transformers.Gemma3TextConfig,
    "PhiForCausalLM": transformers.PhiConfig,
    "Phi3ForCausalLM": transformers.Phi3Config,
    "SmolLM3ForCausalLM": transformers.SmolLM3Config,
    "Olmo2ForCausalLM": transformers.Olmo2Config,
    "GraniteForCausalLM": transformers.GraniteConfig,
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
    family_of(config).hyperparameters(config)
    rope_tensors(config)


CONFIGS = {name: config_json(name) for name in CLASSES}
ROPES = {
    "LlamaForCausalLM": LLAMA3,
    "MistralForCausalLM": {"rope_type": "linear", "factor": 2.0},
    "Phi3ForCausalLM": {"rope_type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
}
_ATOMS = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=3)
_ANYTHING = (
    _ATOMS
    | st.lists(_ATOMS | st.lists(_ATOMS, max_size=1), max_size=2)
    | st.dictionaries(st.sampled_from(["rope_type", "type", "full_attention", "sliding_attention"]), _ATOMS, max_size=2)
)


@given(architecture=st.sampled_from(sorted(CLASSES)), data=st.data(), value=_ANYTHING)
def test_any_value_of_any_key_is_written_or_refused_in_words(
    architecture: str, data: st.DataObject, value: object
) -> None:
    key = data.draw(st.sampled_from(sorted({*CONFIGS[architecture], "rope_scaling", "layer_types"})))
    config = CONFIGS[architecture] | {key: value}
    try:
        from_hf_config(config)  # which every directory is read by first
        check(config)
    except (ValueError, UserError):
        return
    assert np.isfinite(_numbers(family_of(config).hyperparameters(config))).all()


@given(architecture=st.sampled_from(sorted(ROPES)), data=st.data(), value=_ANYTHING)
def test_any_value_within_rope_is_written_or_refused_in_words(
    architecture: str, data: st.DataObject, value: object
) -> None:
    rope = ROPES[architecture]
    key = data.draw(st.sampled_from(sorted({*rope, "attention_factor", "partial_rotary_factor", "rope_theta"})))
    with contextlib.suppress(UserError):
        check(CONFIGS[architecture] | {"rope_parameters": rope | {key: value}, "original_max_position_embeddings": 64})


def _numbers(hyperparameters: dict[str, Any]) -> list[float]:
    return [value for value in hyperparameters.values() if not isinstance(value, str)]


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
        ("LlamaForCausalLM", "architectures", ["Qwen2MoeForCausalLM"]),
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
        ("MixtralForCausalLM", "sliding_window", 4096),
        ("GemmaForCausalLM", "hidden_act", "silu"),
        ("GemmaForCausalLM", "tie_word_embeddings", False),
        ("GemmaForCausalLM", "attention_bias", True),
        ("Gemma2ForCausalLM", "hidden_activation", "gelu"),  # the exact one
        ("Gemma2ForCausalLM", "query_pre_attn_scalar", 144),
        ("Gemma2ForCausalLM", "attn_logit_softcapping", None),
        ("Gemma2ForCausalLM", "final_logit_softcapping", None),
        ("Gemma2ForCausalLM", "layer_types", ["sliding_attention", "sliding_attention", *["full_attention"] * 24]),
        ("Gemma2ForCausalLM", "layer_types", ["full_attention"] * 26),
        ("Gemma3ForCausalLM", "final_logit_softcapping", 30.0),
        ("Gemma3ForCausalLM", "use_bidirectional_attention", True),
        ("PhiForCausalLM", "qk_layernorm", True),
        ("PhiForCausalLM", "tie_word_embeddings", True),
        ("PhiForCausalLM", "head_dim", 128),
        ("Phi3ForCausalLM", "sliding_window", 2047),
        ("SmolLM3ForCausalLM", "no_rope_layers", [1] * 36),
        ("Olmo2ForCausalLM", "tie_word_embeddings", True),
        ("GraniteForCausalLM", "mlp_bias", True),
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
        ("Gemma3ForCausalLM", {"full_attention": {"rope_type": "yarn"}, "sliding_attention": {"rope_type": "default"}}),
        ("Gemma3ForCausalLM", {"full_attention": {}, "sliding_attention": {"rope_type": "linear", "factor": 8.0}}),
    ],
)
def test_a_scaling_of_rope_that_the_file_cannot_carry_is_refused(architecture: str, rope: dict[str, Any]) -> None:
    kinds = {rope.get("rope_type"), *(each.get("rope_type") for each in rope.values() if isinstance(each, dict))}
    (kind,) = kinds - {None, "default"}
    with pytest.raises(UserError, match=rf"rope_type = '{kind}'"):
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
    assert family_of(config).hyperparameters(config)["rope.freq_base"] == 500_000.0
    factors = rope_tensors(config)["rope_freqs.weight"]
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
    factors = rope_tensors(config)["rope_freqs.weight"]
    np.testing.assert_allclose(factors, plain / scaled.numpy(), rtol=1e-4)


def test_gemma_3_as_it_was_published() -> None:
    """The 4B model's keys: two RoPEs, of which one is stretched, told by the older names; a period of six."""
    config = PRESETS["gemma-3-4b"]
    keys = family_of(config).hyperparameters(config)
    assert {key: value for key, value in keys.items() if "rope" in key or "sliding" in key} == {
        "rope.dimension_count": 256,
        "rope.freq_base": 1_000_000.0,
        "rope.freq_base_swa": 10_000.0,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
        "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": 6,
    }


@pytest.mark.parametrize(("preset", "scalar"), [("gemma-2-9b", 256), ("gemma-3-27b", 168)])
def test_the_scale_of_gemmas_scores_is_the_one_that_is_built_in(preset: str, scalar: int) -> None:
    """Of the largest it is the width over the heads: 5376 / 32."""
    check(PRESETS[preset] | {"query_pre_attn_scalar": scalar})
    with pytest.raises(UserError, match=f"query_pre_attn_scalar = {scalar + 1}"):
        check(PRESETS[preset] | {"query_pre_attn_scalar": scalar + 1})


@given(
    theta=st.floats(1e3, 1e7),
    original=st.integers(32, 16_384),
    stretch=st.integers(1, 64),
    long=st.lists(st.floats(1, 64), min_size=24, max_size=24),
)
def test_longrope_is_that_of_transformers(theta: float, original: int, stretch: int, long: list[float]) -> None:
    rope = {"rope_type": "longrope", "rope_theta": theta, "short_factor": [1.0] * 24, "long_factor": long}
    hf = transformers.Phi3Config(
        hidden_size=256,
        num_attention_heads=4,
        partial_rotary_factor=0.75,  # 48 of each head's 64
        rope_parameters=rope,
        max_position_embeddings=original * stretch,
        original_max_position_embeddings=original,
    )
    config = json.loads(hf.to_json_string(use_diff=False))
    scaled, attention_factor = ROPE_INIT_FUNCTIONS["longrope"](hf, "cpu", seq_len=original + 1)
    factors = rope_tensors(config)
    plain = theta ** (-np.arange(0, 48, 2) / 48)
    np.testing.assert_allclose(factors["rope_factors_long.weight"], plain / scaled.numpy(), rtol=1e-4)
    np.testing.assert_array_equal(factors["rope_factors_short.weight"], np.ones(24))
    keys = rope_keys(config)
    assert keys["rope.scaling.attn_factor"] == pytest.approx(attention_factor)
    assert keys["rope.scaling.original_context_length"] == original
    assert keys["rope.dimension_count"] == 48
