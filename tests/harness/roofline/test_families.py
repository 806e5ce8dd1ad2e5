"""Every family against the model that transformers builds from the same configuration, and against published totals."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, StaticCache

from harness.models.presets import PRESETS
from harness.models.source import resolve
from harness.roofline.families import FAMILIES
from harness.roofline.hf_config import from_hf_config
from harness.roofline.traffic import kv_bytes_per_token, kv_cache_bytes, parameter_count, streamed_parameters

Config = dict[str, Any]

_BASE: Config = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "head_dim": 32,
    "sliding_window": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_LOCAL_EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2}
_SHARED = {**_EXPERTS, "shared_expert_intermediate_size": 40}
_LINEAR = {
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
}
_LATENT = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_ALTERNATING = ["sliding_attention", "sliding_attention", "full_attention"] * 2
_PER_LAYER = {
    "layer_types": _ALTERNATING,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 512,
    "hidden_size_per_layer_input": 8,
}


def _tiny(model_type: str, *without: str, **keys: Any) -> Config:
    config = {**_BASE, "model_type": model_type, **keys}
    return {key: value for key, value in config.items() if key not in without}


# One for each way that a family can be built, by the family's own names.
_TINY: dict[str, Config] = {
    "llama": _tiny("llama", "sliding_window"),
    "llama, biased": _tiny("llama", "sliding_window", "head_dim", attention_bias=True, mlp_bias=True),
    "granite": _tiny("granite", "sliding_window", "head_dim", attention_bias=True, mlp_bias=True),
    "mistral": _tiny("mistral"),
    "olmo2": _tiny("olmo2", "sliding_window", "head_dim"),
    "phi": _tiny("phi", "sliding_window", "head_dim"),
    "smollm3": _tiny("smollm3", "head_dim"),
    "smollm3, windows": _tiny("smollm3", "head_dim", use_sliding_window=True),
    "smollm3, listed": _tiny("smollm3", "head_dim", use_sliding_window=True, no_rope_layers=[1, 1, 1, 0, 1, 0]),
    "ministral3": _tiny("ministral3"),
    "mixtral": _tiny("mixtral", **_LOCAL_EXPERTS),
    "phi3": _tiny("phi3", "head_dim"),
    "qwen2": _tiny("qwen2", "head_dim"),
    "qwen2, late windows": _tiny("qwen2", "head_dim", use_sliding_window=True, max_window_layers=4),
    "qwen2_moe": _tiny("qwen2_moe", "head_dim", **_SHARED, decoder_sparse_step=2, mlp_only_layers=[3]),
    "qwen2_moe, unbiased": _tiny("qwen2_moe", "head_dim", **_SHARED, qkv_bias=False),
    "qwen3": _tiny("qwen3"),
    "qwen3, biased": _tiny("qwen3", attention_bias=True),
    "qwen3_moe": _tiny("qwen3_moe", **_EXPERTS, decoder_sparse_step=2, mlp_only_layers=[3]),
    "qwen3_next": _tiny("qwen3_next", "sliding_window", **_SHARED, **_LINEAR, mlp_only_layers=[1]),
    "qwen3_5": _tiny("qwen3_5_text", "sliding_window", **_LINEAR),
    "qwen3_5, biased": _tiny("qwen3_5_text", "sliding_window", **_LINEAR, attention_bias=True),
    "qwen3_5_moe": _tiny("qwen3_5_moe_text", "sliding_window", "intermediate_size", **_SHARED, **_LINEAR),
    "gemma": _tiny("gemma", "sliding_window"),
    "gemma2": _tiny("gemma2"),
    "gemma3": _tiny("gemma3_text", sliding_window_pattern=3),
    "gemma3, listed": _tiny("gemma3_text", layer_types=_ALTERNATING),
    "gemma3n": _tiny("gemma3n_text", **_PER_LAYER, attention_bias=True, intermediate_size=[96, 32] * 3),
    "gemma4": _tiny("gemma4_text", **_PER_LAYER, use_double_wide_mlp=True, attention_bias=True),
    "gemma4, with experts": _tiny(
        "gemma4_text",
        layer_types=_ALTERNATING,
        hidden_size_per_layer_input=0,
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        enable_moe_block=True,
        num_experts=8,
        top_k_experts=2,
        moe_intermediate_size=48,
    ),
    "gemma4_unified": _tiny("gemma4_unified_text", layer_types=_ALTERNATING),
    "gpt_oss": _tiny("gpt_oss", **_LOCAL_EXPERTS),
    "gpt_oss, unbiased": _tiny("gpt_oss", **_LOCAL_EXPERTS, attention_bias=False),
    "deepseek_v2": _tiny("deepseek_v2", "head_dim", "sliding_window", **_LATENT, mlp_bias=True),
    "deepseek_v3": _tiny("deepseek_v3", "head_dim", "sliding_window", **_LATENT),
    "deepseek_v3, queries whole": _tiny(
        "deepseek_v3", "head_dim", "sliding_window", **{**_LATENT, "q_lora_rank": None}, attention_bias=True
    ),
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 512,
        "n_embd": 64,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 128,
        "n_ctx": 128,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "gpt2, untied": {
        "model_type": "gpt2",
        "vocab_size": 512,
        "n_embd": 64,
        "n_layer": 3,
        "n_head": 4,
        "n_inner": 100,
        "n_positions": 128,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}

_CONFIGS = {**PRESETS, **_TINY}
_TOKENS = 40  # more than the tiny models' windows


@functools.cache
def _on_meta(name: str) -> PreTrainedModel:
    config = {key: value for key, value in _CONFIGS[name].items() if key != "quantization_config"}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))


def test_every_family_is_here() -> None:
    assert {config["model_type"] for config in _TINY.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", _CONFIGS)
def test_parameters_are_those_of_transformers(name: str) -> None:
    assert parameter_count(from_hf_config(_CONFIGS[name])) == _on_meta(name).num_parameters()


@pytest.mark.parametrize("name", _CONFIGS)
def test_streamed_parameters_are_those_of_the_tensors_that_a_step_reads(name: str) -> None:
    arch, model = from_hf_config(_CONFIGS[name]), _on_meta(name)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert arch.tied_embeddings == tied
    looked_up = (
        "wpe.weight",
        "embed_tokens_per_layer.weight",
        *(() if tied else ("embed_tokens.weight", "wte.weight")),
    )
    read = 0
    for parameter, tensor in model.named_parameters():
        if ".experts." in parameter:
            read += tensor.numel() // _experts(_CONFIGS[name]) * _experts_used(_CONFIGS[name])
        elif not parameter.endswith(looked_up):
            read += tensor.numel()
    assert streamed_parameters(arch) == read


def _experts(config: Config) -> int:
    return next(config[key] for key in ("num_experts", "num_local_experts", "n_routed_experts") if key in config)


def _experts_used(config: Config) -> int:
    return config.get("num_experts_per_tok") or config["top_k_experts"]


@pytest.mark.parametrize("name", _TINY)
@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
def test_the_cache_is_the_one_that_transformers_fills(name: str) -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**_TINY[name]))
    cache = StaticCache(config=model.config, max_cache_len=_TOKENS)
    with torch.inference_mode():
        model(torch.zeros((1, _TOKENS), dtype=torch.long), past_key_values=cache, use_cache=True)
    kept = state = 0
    for layer in cache.layers:
        if isinstance(keys := getattr(layer, "keys", None), torch.Tensor):
            kept += keys.numel() + layer.values.numel()
        if hasattr(layer, "recurrent_states"):
            # Of the convolution's columns the oldest is replaced by the next token's: llama.cpp does not keep it.
            state += layer.recurrent_states[0].numel() + layer.conv_states[0][..., 1:].numel()
    arch = from_hf_config(_TINY[name])
    assert kv_cache_bytes(arch, _TOKENS, 2) == 2 * kept + 4 * state
    assert kv_cache_bytes(arch, _TOKENS, 1, 3, range(2)) + kv_cache_bytes(arch, _TOKENS, 1, 3, range(2, 99)) == (
        kv_cache_bytes(arch, _TOKENS, 1, 3)
    )


@pytest.mark.parametrize("name", _TINY)
def test_what_transformers_saves_is_what_the_shape_calls_for(name: str, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**_TINY[name])).save_pretrained(tmp_path)
    source = resolve(str(tmp_path))  # compares the files' matrices with the shape's, layer by layer
    assert source.architecture.n_layers == from_hf_config(_TINY[name]).n_layers


# Parameters in billions, in all and active, as publishers or llama.cpp give them; the active ones include the input
# embedding where the publisher counts it.
@pytest.mark.parametrize(
    ("name", "total", "active", "with_embedding"),
    [
        ("llama-2-70b", 68.98, 68.98, True),
        ("mixtral-8x7b", 46.7, 12.9, True),
        ("qwen3-30b-a3b", 30.5, 3.3, True),
        ("qwen3-235b-a22b", 235.1, 22.0, True),
        ("gpt-oss-20b", 20.91, 3.61, False),
        ("gpt-oss-120b", 116.83, 5.13, False),
        ("deepseek-v3", 671.0, 37.0, True),
        ("gemma-4-31b", 30.7, 30.7, False),
        ("gemma-4-26b-a4b", 25.23, 3.8, False),
        ("qwen3.6-27b", 26.90, 26.90, True),
        ("qwen3.6-35b-a3b", 34.66, 3.0, False),
        ("ministral-3-14b", 13.51, 13.51, True),
        ("phi-4", 14.66, 14.66, True),
    ],
)
def test_published_totals(name: str, total: float, active: float, *, with_embedding: bool) -> None:
    arch = from_hf_config(PRESETS[name])
    embedding = arch.vocab_size * arch.d_model if with_embedding and not arch.tied_embeddings else 0
    assert parameter_count(arch) == pytest.approx(total * 1e9, rel=0.002)
    assert streamed_parameters(arch) + embedding == pytest.approx(active * 1e9, rel=0.02)


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("llama-3.1-8b", 131_072),
        ("llama-2-7b", 524_288),
        ("qwen3-30b-a3b", 98_304),
        ("deepseek-v3", (512 + 64) * 2 * 61),
        ("gpt-oss-20b", 2 * 24 * 8 * 64 * 2),
        ("gemma-3-27b", 2 * 62 * 16 * 128 * 2),
        ("gemma-4-31b", 2 * (50 * 16 * 256 + 10 * 4 * 512) * 2),
        ("qwen3.6-27b", 2 * 16 * 4 * 256 * 2),
    ],
)
def test_cache_bytes_of_a_token(name: str, bytes_per_token: int) -> None:
    assert kv_bytes_per_token(from_hf_config(PRESETS[name]), 2) == bytes_per_token


def test_a_window_caps_the_layers_that_have_one() -> None:
    # gpt-oss-20b at 128 Ki tokens: 12 layers keep 128 of them, 12 keep all.
    arch = from_hf_config(PRESETS["gpt-oss-20b"])
    assert kv_cache_bytes(arch, 131_072) == 12 * (128 + 131_072) * 2 * 8 * 64 * 2
    # Gemma 3 27B: every sixth of 62 layers is global.
    gemma = from_hf_config(PRESETS["gemma-3-27b"])
    assert kv_cache_bytes(gemma, 32_768) == (52 * 1024 + 10 * 32_768) * 2 * 16 * 128 * 2


def test_a_recurrent_state_has_one_size() -> None:
    # Qwen3.6 27B: 48 layers, each 48 matrices of 128 × 128 and three columns of 10 240, in float32.
    arch = from_hf_config(PRESETS["qwen3.6-27b"])
    state = 48 * (48 * 128 * 128 + 3 * 10_240) * 4
    assert kv_cache_bytes(arch, 0) == state
    assert kv_cache_bytes(arch, 1000) == state + 1000 * 65_536
