"""The model families that llama.cpp computes as transformers does, and the configurations it would change.

Sources: llama.cpp's graphs (`src/models/*.cpp`) for what is built in, its loader (`src/llama-model.cpp`) for
the metadata, transformers' configuration classes for the defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Config = Mapping[str, Any]

_ADVICE = "convert the model with llama.cpp's convert_hf_to_gguf.py and pass the .gguf file"


@dataclass(frozen=True)
class Family:
    """How one Hugging Face architecture is written as GGUF."""

    architecture: str  # GGUF's name
    fixed: Mapping[str, Any]  # config keys that llama.cpp does not read, and the only value it computes
    hyperparameters: Callable[[Config], dict[str, int | float]]  # GGUF keys, without the architecture
    rotates_pairs: bool = False  # RoPE turns elements 2i and 2i+1; transformers turns i and i + head_dim/2
    conv1d: bool = False  # linear layers are stored [in, out]
    window_default: int | None = None  # sliding_window of a config without the key; llama.cpp has no window


def family_of(config: Config) -> Family:
    """The family of a `config.json`, checked: llama.cpp will compute what the configuration says.

    Raises:
        UserError: another architecture, or a value that llama.cpp would ignore; the message names the key.
    """
    names = config.get("architectures") or [None]
    family = FAMILIES.get(names[0])
    if family is None:
        raise UserError(f"config.json: architectures: {names[0]!r} is not one of {', '.join(FAMILIES)}; {_ADVICE}")
    for key, computed in family.fixed.items():
        value = config.get(key)
        if value is None:
            value = _DEFAULTS.get(key, computed)
        if value != computed:
            raise unsupported(key, value, family.architecture)
    window = config.get("sliding_window", family.window_default)
    if family.window_default and window and window < required(config, "max_position_embeddings"):
        raise unsupported("sliding_window", window, family.architecture)
    return family


def unsupported(key: str, value: object, architecture: str) -> UserError:
    """The error for a configuration value that llama.cpp would not honour."""
    return UserError(f"config.json: {key} = {value!r}: llama.cpp's {architecture!r} does not compute that; {_ADVICE}")


def required(config: Config, key: str) -> Any:
    """The value of a key that the export cannot do without.

    Raises:
        UserError: the key is missing.
    """
    if config.get(key) is None:
        raise UserError(f"config.json: {key} is missing")
    return config[key]


def head_dim(config: Config) -> int:
    """Elements of one attention head of a family with RoPE."""
    explicit = config.get("head_dim")
    return int(explicit or required(config, "hidden_size") // required(config, "num_attention_heads"))


def n_layers(config: Config) -> int:
    """Repeating layers."""
    return int(config.get("num_hidden_layers") or required(config, "n_layer"))


def rope_factors(config: Config, family: Family) -> NDArray[np.float32] | None:
    """What divides each RoPE frequency, `[head_dim/2]`, if the config scales them as Llama 3.1 does.

    Wavelengths beyond `original / low_freq_factor` are stretched by `factor`, those within
    `original / high_freq_factor` are kept, and the frequency is interpolated between the two. Source:
    `apply_scaling` in Meta's llama-models, `models/llama3/model.py`.

    Raises:
        UserError: RoPE is scaled in another way, or llama.cpp's graph takes no factors.
    """
    rope, kind = _rope(config)
    if kind == "default":
        return None
    if kind != "llama3" or family.architecture != "llama":
        raise unsupported("rope_type", kind, family.architecture)
    factor, low, high = (required(rope, f"{name}factor") for name in ("", "low_freq_", "high_freq_"))
    original = rope.get("original_max_position_embeddings") or required(config, "max_position_embeddings")
    exponents = np.arange(0, head_dim(config), 2, dtype=np.float64) / head_dim(config)
    wavelengths = 2 * math.pi * float(_rope_theta(config)) ** exponents
    kept = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    factors: NDArray[np.float32] = (1 / ((1 - kept) / factor + kept)).astype(np.float32)
    return factors


def _rope(config: Config) -> tuple[Mapping[str, Any], str]:
    """RoPE's parameters, by the name that transformers gives them since 5 or by the older one, and type."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope, rope.get("rope_type") or rope.get("type") or "default"


def _rope_theta(config: Config) -> float:
    return float(_rope(config)[0].get("rope_theta") or config.get("rope_theta") or 10_000.0)


def _rope_family(config: Config) -> dict[str, int | float]:
    partial = _rope(config)[0].get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    if partial != 1.0:
        raise unsupported("partial_rotary_factor", partial, str(config["architectures"][0]))
    heads = int(required(config, "num_attention_heads"))
    return {
        "context_length": int(required(config, "max_position_embeddings")),
        "embedding_length": int(required(config, "hidden_size")),
        "block_count": n_layers(config),
        "feed_forward_length": int(required(config, "intermediate_size")),
        "attention.head_count": heads,
        "attention.head_count_kv": int(config.get("num_key_value_heads") or heads),
        "attention.key_length": head_dim(config),
        "attention.value_length": head_dim(config),
        "attention.layer_norm_rms_epsilon": float(required(config, "rms_norm_eps")),
        "rope.dimension_count": head_dim(config),
        "rope.freq_base": _rope_theta(config),
        "vocab_size": int(required(config, "vocab_size")),
    }


def _qwen2(config: Config) -> dict[str, int | float]:
    if head_dim(config) * required(config, "num_attention_heads") != required(config, "hidden_size"):
        raise unsupported("head_dim", head_dim(config), "qwen2")
    return _rope_family(config)


def n_experts(config: Config) -> int:
    """Experts of a layer: the key in published checkpoints, or the one that transformers saves since 5."""
    return int(config.get("num_experts") or required(config, "num_local_experts"))


def _qwen3_moe(config: Config) -> dict[str, int | float]:
    return _rope_family(config) | {
        "expert_count": n_experts(config),
        "expert_used_count": int(required(config, "num_experts_per_tok")),
        "expert_feed_forward_length": int(required(config, "moe_intermediate_size")),
    }


def _gpt2(config: Config) -> dict[str, int | float]:
    width = int(required(config, "n_embd"))
    return {
        "context_length": int(required(config, "n_positions")),
        "embedding_length": width,
        "block_count": n_layers(config),
        "feed_forward_length": int(config.get("n_inner") or 4 * width),
        "attention.head_count": int(required(config, "n_head")),
        "attention.layer_norm_epsilon": float(required(config, "layer_norm_epsilon")),
        "vocab_size": int(required(config, "vocab_size")),
    }


# transformers' default of a missing key, where it is not what llama.cpp computes.
_DEFAULTS = {"norm_topk_prob": False}

_SILU = {"quantization_config": None, "hidden_act": "silu"}
_QWEN2 = _SILU | {"use_sliding_window": False}
_QWEN3 = _QWEN2 | {"attention_bias": False}
_QWEN3_MOE = _QWEN3 | {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
_GPT2 = {
    "quantization_config": None,
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}

FAMILIES = {
    "LlamaForCausalLM": Family("llama", _SILU, _rope_family, rotates_pairs=True),
    "MistralForCausalLM": Family("llama", _SILU, _rope_family, rotates_pairs=True, window_default=4096),
    "Qwen2ForCausalLM": Family("qwen2", _QWEN2, _qwen2),
    "Qwen3ForCausalLM": Family("qwen3", _QWEN3, _rope_family),
    "Qwen3MoeForCausalLM": Family("qwen3moe", _QWEN3_MOE, _qwen3_moe),
    "GPT2LMHeadModel": Family("gpt2", _GPT2, _gpt2, conv1d=True),
}
"""By the first of `architectures` in config.json."""
