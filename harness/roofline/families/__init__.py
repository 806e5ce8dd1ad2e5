"""The families of models whose bytes are known, by Hugging Face's `model_type`.

A family's function reads the keys of `config.json` (GGUF's are translated to them) and gives an `Architecture` whose
parameters are those of transformers' model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.roofline.families import decoder, deepseek, gemma4, gpt2, hybrid, phi

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.roofline.architecture import Architecture
    from harness.roofline.families.parts import Config


@dataclass(frozen=True)
class Family:
    """How one family's configuration is read."""

    build: Callable[[Config], Architecture]
    defaults: Mapping[str, object] = field(default_factory=dict)  # transformers', where published models rely on them
    idle: frozenset[str] = frozenset()  # keys that sound like sizes, and change none in this family


_QWEN = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA = {"tie_word_embeddings": True, "head_dim": 256}
_GEMMA3 = {
    **_GEMMA,
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "max_position_embeddings": 131_072,
}
_GEMMA3N = {**_GEMMA, "vocab_size_per_layer_input": 262_144, "num_kv_shared_layers": 15, "sliding_window": 512}
_GEMMA3N |= {"altup_num_inputs": 4, "laurel_rank": 64, "hidden_size_per_layer_input": 256}
_GEMMA4 = {**_GEMMA, "vocab_size_per_layer_input": 262_144, "num_kv_shared_layers": 0, "sliding_window": 512}
_GEMMA4 |= {"global_head_dim": 512, "hidden_size_per_layer_input": 256}
_HYBRID = {
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_DEEPSEEK_IDLE = frozenset({"num_key_value_heads", "head_dim", "qk_head_dim", "n_group", "ep_size"})
_QWEN3_IDLE = frozenset({"use_qk_norm"})

FAMILIES = {
    "deepseek_v2": Family(deepseek.deepseek, {"first_k_dense_replace": 0, "n_shared_experts": 2}, _DEEPSEEK_IDLE),
    "deepseek_v3": Family(deepseek.deepseek, {"first_k_dense_replace": 3, "n_shared_experts": 1}, _DEEPSEEK_IDLE),
    "gemma": Family(decoder.llama, _GEMMA),
    "gemma2": Family(decoder.gemma2, {**_GEMMA, "sliding_window": 4096}, frozenset({"sliding_window_size"})),
    "gemma3_text": Family(decoder.gemma3, _GEMMA3),
    "gemma3n_text": Family(gemma4.gemma3n, _GEMMA3N, frozenset({"activation_sparsity_pattern"})),
    "gemma4_text": Family(gemma4.gemma4, _GEMMA4),
    "gemma4_unified_text": Family(gemma4.gemma4, {**_GEMMA4, "hidden_size_per_layer_input": 0, "sliding_window": 1024}),
    "gpt2": Family(gpt2.gpt2, {"tie_word_embeddings": True}),
    "gpt_oss": Family(decoder.gpt_oss, {"head_dim": 64, "sliding_window": 128, "attention_bias": True}),
    "granite": Family(decoder.llama),
    "llama": Family(decoder.llama),
    "ministral3": Family(decoder.llama, {"head_dim": 128}),
    "mistral": Family(decoder.llama, {"sliding_window": 4096}),
    "mixtral": Family(decoder.mixtral),
    "olmo2": Family(decoder.olmo2),
    "phi": Family(phi.phi),
    "phi3": Family(decoder.llama),
    "qwen2": Family(decoder.qwen2, _QWEN),
    "qwen2_moe": Family(decoder.qwen2_moe, _QWEN),
    "qwen3": Family(decoder.qwen3, {**_QWEN, "head_dim": 128}, _QWEN3_IDLE),
    "qwen3_moe": Family(decoder.qwen3_moe, _QWEN, _QWEN3_IDLE | {"max_window_layers"}),
    "qwen3_5_moe_text": Family(hybrid.qwen3_5_moe, _HYBRID, frozenset({"intermediate_size"})),
    "qwen3_5_text": Family(hybrid.qwen3_5, _HYBRID),
    "qwen3_next": Family(hybrid.qwen3_next, _HYBRID),
    "smollm3": Family(
        decoder.smollm3, {"tie_word_embeddings": True, "use_sliding_window": False}, frozenset({"max_window_layers"})
    ),
}


def family_of(model_type: str) -> Family:
    """The family of a text model.

    Raises:
        ValueError: it is unknown; the message names it and those that are not.
    """
    if model_type not in FAMILIES:
        raise ValueError(f"model_type {model_type!r} is unknown; known are {', '.join(FAMILIES)}")
    return FAMILIES[model_type]
