"""A model's shape: the numbers that decide how many bytes it holds and how many a token moves."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


# Where GGUF spells a family otherwise than Hugging Face.
_HF_MODEL_TYPES = {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}


@dataclass(frozen=True)
class Architecture:
    """One decoder-only transformer. Counts are of elements; a mixture of experts has `n_experts` > 0."""

    model_type: str  # as Hugging Face names the family: "llama", "qwen3_moe"
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int  # width of the dense feed-forward network; 0 where all are experts
    vocab_size: int
    tied_embeddings: bool  # the input embedding is the LM head too
    max_context: int | None  # tokens; None where the model states no limit
    n_experts: int = 0
    n_experts_used: int = 0  # by each token
    d_expert: int = 0  # width of one expert
    sliding_window: int | None = None  # tokens that a layer attends to at most; None: all of them


def from_hf_config(config: Mapping[str, Any]) -> Architecture:
    """Read a Hugging Face `config.json`.

    Raises:
        ValueError: a key is missing or is no number; the message names it.
    """
    model_type = _word(config, "model_type")
    if model_type == "gpt2":
        d_model, n_heads = _size(config, "n_embd"), _size(config, "n_head")
        return Architecture(
            model_type=model_type,
            n_layers=_size(config, "n_layer"),
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_heads,
            head_dim=d_model // n_heads,
            d_ff=_count(config, "n_inner", default=4 * d_model),
            vocab_size=_count(config, "vocab_size"),
            tied_embeddings=True,
            max_context=_count(config, "n_positions"),
        )
    d_model, n_heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    # Mixtures call it num_experts (Qwen) or num_local_experts (Mixtral).
    n_experts = _count(config, "num_experts", default=_count(config, "num_local_experts", default=0))
    d_ff = _count(config, "intermediate_size")
    return Architecture(
        model_type=model_type,
        n_layers=_size(config, "num_hidden_layers"),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=_count(config, "num_key_value_heads", default=n_heads),
        head_dim=_count(config, "head_dim", default=d_model // n_heads),
        d_ff=0 if n_experts else d_ff,
        vocab_size=_count(config, "vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        max_context=_count(config, "max_position_embeddings", default=0) or None,
        n_experts=n_experts,
        n_experts_used=_count(config, "num_experts_per_tok") if n_experts else 0,
        d_expert=_count(config, "moe_intermediate_size", default=d_ff) if n_experts else 0,
        # Qwen states a window and, apart, that it is not used.
        sliding_window=_count(config, "sliding_window", default=0) or None
        if config.get("use_sliding_window", True)
        else None,
    )


def from_gguf_metadata(metadata: Mapping[str, object], *, tied_embeddings: bool) -> Architecture:
    """Read a GGUF file's metadata.

    Args:
        metadata: by GGUF's keys, such as `llama.block_count`; arrays as sequences.
        tied_embeddings: whether the file has no `output.weight`; no key says so.

    Raises:
        ValueError: a key is missing or is no number; the message names it.
    """
    prefix = _word(metadata, "general.architecture")
    d_model = _size(metadata, f"{prefix}.embedding_length")
    n_heads = _size(metadata, f"{prefix}.attention.head_count")
    n_experts = _count(metadata, f"{prefix}.expert_count", default=0)
    d_ff = _count(metadata, f"{prefix}.feed_forward_length", default=0 if n_experts else None)
    tokens = metadata.get("tokenizer.ggml.tokens")
    n_tokens = len(tokens) if isinstance(tokens, Sized) else None
    return Architecture(
        model_type=_HF_MODEL_TYPES.get(prefix, prefix),
        n_layers=_size(metadata, f"{prefix}.block_count"),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=_count(metadata, f"{prefix}.attention.head_count_kv", default=n_heads),
        head_dim=_count(metadata, f"{prefix}.attention.key_length", default=d_model // n_heads),
        d_ff=0 if n_experts else d_ff,
        vocab_size=_count(metadata, f"{prefix}.vocab_size", default=n_tokens),
        tied_embeddings=tied_embeddings,
        max_context=_count(metadata, f"{prefix}.context_length", default=0) or None,
        n_experts=n_experts,
        n_experts_used=_count(metadata, f"{prefix}.expert_used_count") if n_experts else 0,
        d_expert=_count(metadata, f"{prefix}.expert_feed_forward_length", default=d_ff) if n_experts else 0,
        sliding_window=_count(metadata, f"{prefix}.attention.sliding_window", default=0) or None,
    )


def _word(values: Mapping[str, object], key: str) -> str:
    if not values.get(key):
        raise ValueError(f"{key} is missing")
    return str(values[key])


def _count(values: Mapping[str, object], key: str, *, default: int | None = None) -> int:
    """A whole number; `default` where the key is missing or null."""
    value = values.get(key)
    if value is None:
        if default is None:
            raise ValueError(f"{key} is missing")
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} is {value!r}, not a whole number")
    return value


def _size(values: Mapping[str, object], key: str) -> int:
    """A whole number that must not be missing or nothing: layers, widths, heads."""
    if (size := _count(values, key)) == 0:
        raise ValueError(f"{key} is 0")
    return size
