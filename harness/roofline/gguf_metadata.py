"""A model's shape from a GGUF file's metadata: the same things as a `config.json`, by other names."""

from __future__ import annotations

import re
from collections import ChainMap
from typing import TYPE_CHECKING

from harness.roofline.families import family_of
from harness.roofline.gguf_names import NAMES
from harness.roofline.keys import Noted, count, is_list, per_layer, size, word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.roofline.architecture import Architecture

    Metadata = Mapping[str, object]

# As in `hf_config.py`, in GGUF's words.
_SIZE = re.compile(r"\b(count|inputs|interval|kernel|layers|length|pattern|rank|size|window)\b")
_HARMLESS = re.compile(r"\b(audio|clamp|context|group|rope|temperature|vision)\b")

_SIGMOID = 2  # llama.cpp's number of the function that DeepSeek V3 chooses experts by


def from_gguf_metadata(metadata: Metadata, *, tied_embeddings: bool) -> Architecture:
    """Read a GGUF file's metadata.

    Args:
        metadata: by GGUF's keys, such as `llama.block_count`; arrays as sequences.
        tied_embeddings: whether the file has no `output.weight`; no key says so.

    Raises:
        ValueError: the architecture is unknown, a key is missing or is no number, two contradict each other, or there
            is one that may change the bytes and that the architecture is not known to have; the message names it.
    """
    name = word(metadata, "general.architecture")
    if name not in NAMES:
        raise ValueError(f"general.architecture {name!r} is unknown; known are {', '.join(NAMES)}")
    own = {key.removeprefix(f"{name}."): value for key, value in metadata.items() if key.startswith(f"{name}.")}
    noted = Noted(own)
    try:
        config = _config(noted, name, metadata.get("tokenizer.ggml.tokens"))
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from error
    for key in own.keys() - noted.asked - NAMES[name].idle:
        if _may_change_bytes(key, own[key]):
            raise ValueError(f"{name}.{key} is {own[key]!r}, which {name} is not known to have")
    family = family_of(str(config["model_type"]))
    return family.build(ChainMap(config, {"tie_word_embeddings": tied_embeddings}, dict(family.defaults)))


def _may_change_bytes(key: str, value: object) -> bool:
    words = re.sub(r"[._]", " ", key)
    says = bool(value) and not isinstance(value, str)
    return says and _SIZE.search(words) is not None and _HARMLESS.search(words) is None


def _config(values: Metadata, architecture: str, tokens: object) -> dict[str, object]:
    """A `config.json` that says the same; errors begin with the key's name without the architecture."""
    names = NAMES[architecture]
    n_blocks = size(values, "block_count")
    n_layers = n_blocks - count(values, "nextn_predict_layers", default=0)  # the last ones predict more tokens ahead
    d_model, n_heads = size(values, "embedding_length"), _alike(values, "attention.head_count", n_blocks)
    head_dim = count(values, "attention.key_length", default=d_model // n_heads)
    n_tokens = count(values, "vocab_size", default=len(tokens) if is_list(tokens) else None)
    config: dict[str, object] = {
        "model_type": names.model_type,
        "num_hidden_layers": n_layers,
        "hidden_size": d_model,
        "num_attention_heads": n_heads,
        "num_key_value_heads": _by_layer(values, "attention.head_count_kv", n_layers, default=n_heads),
        "head_dim": head_dim,
        "vocab_size": n_tokens,
        "vocab_size_per_layer_input": n_tokens,
        "max_position_embeddings": count(values, "context_length", default=0),
    }
    config |= {ours: _by_layer(values, theirs, n_layers) for ours, theirs in names.needed.items()}
    config |= {ours: _by_layer(values, theirs, n_layers) for ours, theirs in names.optional.items() if theirs in values}
    special = _special(values, config)
    same_heads = special.keys().isdisjoint(("v_head_dim", "global_head_dim"))
    if same_heads and count(values, "attention.value_length", default=head_dim) != head_dim:
        raise ValueError("attention.value_length differs from attention.key_length")
    return config | _layer_types(values, n_layers) | special


def _by_layer(values: Metadata, key: str, n_layers: int, *, default: int | None = None) -> object:
    """A number, or a list of one for each layer where they differ."""
    value = values.get(key)
    if not is_list(value):
        return count(values, key, default=default)
    found = per_layer(values, key, len(value))[:n_layers]
    if len(found) < n_layers:
        raise ValueError(f"{key} lists {len(found)} layers, but there are {n_layers}")
    return found if len(set(found)) > 1 else found[0]


def _alike(values: Metadata, key: str, n_layers: int) -> int:
    found = per_layer(values, key, n_layers)
    if len(set(found)) > 1 or not found[0]:
        raise ValueError(f"{key} is {min(found)} in one layer and {max(found)} in another")
    return found[0]


def _layer_types(values: Metadata, n_layers: int) -> dict[str, object]:
    """Which layers have a window or a recurrent state, where a file says it layer by layer."""
    for key, kind in (("sliding_window_pattern", "sliding_attention"), ("recurrent_layers", "linear_attention")):
        pattern = values.get(f"attention.{key}")
        if isinstance(pattern, int) and pattern > 0:  # the last one of so many is another
            pattern = [index % pattern < pattern - 1 for index in range(n_layers)]
        if is_list(pattern) and len(pattern) >= n_layers:
            return {"layer_types": [kind if is_one else "full_attention" for is_one in pattern[:n_layers]]}
        if pattern is not None:
            raise ValueError(f"attention.{key} is no pattern for {n_layers} layers")
    return {}


def _special(values: Metadata, config: dict[str, object]) -> dict[str, object]:
    """What one architecture says in a way of its own."""
    match config["model_type"]:
        case "deepseek_v2":
            return _latent(values)
        case "qwen3_5_text" | "qwen3_5_moe_text" | "qwen3_next":
            return {"linear_value_head_dim": size(values, "ssm.inner_size") // size(values, "ssm.time_step_rank")}
        case "gemma4_text":
            return {
                "global_head_dim": config["head_dim"],
                "head_dim": size(values, "attention.key_length_swa"),
                "attention_k_eq_v": is_list(config["num_key_value_heads"]),  # only then do the heads differ
                "enable_moe_block": bool(config.get("num_experts")),
            }
        case "gemma3_text" if "sliding_window" not in config:
            return {"sliding_window": None}
        case "llama" if config.get("num_experts"):  # one name for Llama, Mistral and Mixtral
            return {"model_type": "mixtral"}
    return {}


def _latent(values: Metadata) -> dict[str, object]:
    """DeepSeek's heads. Files since 2025 state two lengths: of what is kept, and, as `_mla`, of a head."""
    head_dim = count(values, "attention.key_length_mla", default=size(values, "attention.key_length"))
    rope_dim = size(values, "rope.dimension_count")
    if head_dim < rope_dim:
        raise ValueError(f"rope.dimension_count is {rope_dim}, but a key has {head_dim} elements")
    is_v3 = count(values, "expert_gating_func", default=0) == _SIGMOID
    return {
        "model_type": "deepseek_v3" if is_v3 else "deepseek_v2",
        "qk_nope_head_dim": head_dim - rope_dim,
        "v_head_dim": count(values, "attention.value_length_mla", default=size(values, "attention.value_length")),
        "first_k_dense_replace": count(values, "leading_dense_block_count", default=0),
    }
