"""Each family's `config.json` in GGUF's words, and the values that llama.cpp would compute differently.

Sources: llama.cpp's graphs and loaders (`src/models/*.cpp`), transformers' configuration classes for the defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.models.gguf_export.config import head_dim, n_experts, n_layers, real, required, unsupported
from harness.models.gguf_export.rope import partial_factor, rope_keys, window_rope

if TYPE_CHECKING:
    from harness.models.gguf_export.config import Config, Hyperparameters

# transformers' defaults of Gemma's keys, where published models leave them out.
_GEMMA = {"head_dim": 256}
_GEMMA2 = _GEMMA | {
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_GEMMA3 = _GEMMA | {"query_pre_attn_scalar": 256, "sliding_window": 4096}
# llama.cpp tells the largest models by their layers, and scales their scores by the width a head would have.
_GEMMA2_27B, _GEMMA3_27B = 46, 62
_NO_ROPE_PERIOD = 4


def llama(config: Config) -> Hyperparameters:
    """Llama and what differs from it in nothing that a key says."""
    if (part := partial_factor(config)) != 1.0:
        raise unsupported("partial_rotary_factor", part, str(config["architectures"][0]))
    return _with_rms_norms(config) | rope_keys(config)


def square_heads(config: Config) -> Hyperparameters:
    """Qwen 2 and OLMo 2: heads that share the model's width."""
    _check_square_heads(config)
    return llama(config)


def qwen3_moe(config: Config) -> Hyperparameters:
    """Qwen 3 with experts."""
    return llama(config) | _experts(config) | {
        "expert_feed_forward_length": int(required(config, "moe_intermediate_size"))
    }  # fmt: skip


def mixtral(config: Config) -> Hyperparameters:
    """Mixtral, whose experts llama.cpp knows as Llama's."""
    return _with_rms_norms(config) | rope_keys(config, usual_base=1_000_000.0) | _experts(config)


def smollm3(config: Config) -> Hyperparameters:
    """SmolLM 3: every fourth layer has no positions."""
    layers = range(1, n_layers(config) + 1)
    period = config.get("no_rope_layer_interval") or _NO_ROPE_PERIOD
    rotary = config.get("no_rope_layers") or [layer % period != 0 for layer in layers]
    computed = [layer % _NO_ROPE_PERIOD != 0 for layer in layers]
    if not isinstance(rotary, list) or [bool(has_rope) for has_rope in rotary] != computed:
        raise unsupported("no_rope_layers", rotary, "smollm3")
    return _with_rms_norms(config) | rope_keys(config, usual_base=2_000_000.0)


def granite(config: Config) -> Hyperparameters:
    """Granite: a Llama with four factors."""
    factors = {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    }
    return llama(config) | {ours: real(config, theirs, 1.0) for ours, theirs in factors.items()}


def gemma(config: Config) -> Hyperparameters:
    """The first Gemma."""
    return llama({**_GEMMA, **config})


def gemma2(config: Config) -> Hyperparameters:
    """Gemma 2: caps on scores and logits, and a window in every other layer."""
    config = {**_GEMMA2, **config}
    _check_scale(config, _GEMMA2_27B, "gemma2")
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if config[key] is None:
            raise unsupported(key, None, "gemma2")
    return llama(config) | _windows(config, 2, "gemma2") | {
        "attn_logit_softcapping": real(config, "attn_logit_softcapping"),
        "final_logit_softcapping": real(config, "final_logit_softcapping"),
    }  # fmt: skip


def gemma3(config: Config) -> Hyperparameters:
    """Gemma 3, the text model: five layers with a window and a RoPE of their own, then one without."""
    config = {**_GEMMA3, **config}
    _check_scale(config, _GEMMA3_27B, "gemma3")
    window_base, window_kind = window_rope(config)
    if window_kind != "default":
        raise unsupported("rope_type", window_kind, "gemma3")
    return (
        _with_rms_norms(config)
        | rope_keys(config, usual_base=1_000_000.0)
        | _windows(config, 6, "gemma3")
        | {"rope.freq_base_swa": window_base}
    )


def phi(config: Config) -> Hyperparameters:
    """Phi 1, 1.5 and 2: LayerNorms, and RoPE in a part of each head."""
    _check_square_heads(config)
    return (
        _sizes(config)
        | {"attention.layer_norm_epsilon": real(config, "layer_norm_eps")}
        | rope_keys(config, usual_part=0.5)
    )


def phi3(config: Config) -> Hyperparameters:
    """Phi 3 and 4: RoPE may turn a part of each head, and be stretched for long texts."""
    _check_square_heads(config)
    return _with_rms_norms(config) | rope_keys(config)


def gpt2(config: Config) -> Hyperparameters:
    """GPT-2, by its own names for everything."""
    width = int(required(config, "n_embd"))
    return {
        "context_length": int(required(config, "n_positions")),
        "embedding_length": width,
        "block_count": n_layers(config),
        "feed_forward_length": int(config.get("n_inner") or 4 * width),
        "attention.head_count": int(required(config, "n_head")),
        "attention.layer_norm_epsilon": real(config, "layer_norm_epsilon"),
        "vocab_size": int(required(config, "vocab_size")),
    }


def _with_rms_norms(config: Config) -> Hyperparameters:
    return _sizes(config) | {"attention.layer_norm_rms_epsilon": real(config, "rms_norm_eps")}


def _sizes(config: Config) -> Hyperparameters:
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
        "vocab_size": int(required(config, "vocab_size")),
    }


def _experts(config: Config) -> Hyperparameters:
    return {
        "expert_count": n_experts(config),
        "expert_used_count": int(required(config, "num_experts_per_tok")),
    }


def _windows(config: Config, usual_period: int, architecture: str) -> Hyperparameters:
    """The sliding window, and after how many layers one comes without it: all that GGUF can say of it."""
    stated, layers = config.get("layer_types"), range(n_layers(config))
    period = int(real(config, "sliding_window_pattern", usual_period)) or usual_period
    if stated is not None:
        period = stated.index("full_attention") + 1 if "full_attention" in stated else max(period, len(layers) + 1)
    expected = ["sliding_attention" if (layer + 1) % period else "full_attention" for layer in layers]
    if period == 1 or (stated or expected) != expected:
        raise unsupported("layer_types", stated or expected, architecture)
    return {
        "attention.sliding_window": int(required(config, "sliding_window")),
        "attention.sliding_window_pattern": period,
    }


def _check_scale(config: Config, n_layers_27b: int, architecture: str) -> None:
    """Gemma's scores are scaled by a key that llama.cpp does not read."""
    width, heads = required(config, "hidden_size"), required(config, "num_attention_heads")
    computed = width // heads if n_layers(config) == n_layers_27b else head_dim(config)
    if config["query_pre_attn_scalar"] != computed:
        raise unsupported("query_pre_attn_scalar", config["query_pre_attn_scalar"], architecture)


def _check_square_heads(config: Config) -> None:
    if head_dim(config) * required(config, "num_attention_heads") != required(config, "hidden_size"):
        raise unsupported("head_dim", head_dim(config), str(config["architectures"][0]))
