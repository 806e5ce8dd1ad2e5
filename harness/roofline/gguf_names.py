"""What GGUF calls the keys of `config.json`, for each of llama.cpp's architectures; without the architecture's prefix.

Sources: llama.cpp's loaders (`load_arch_hparams` in `src/models/*.cpp`) and its converter (`conversion/*.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Names:
    """Beside the keys that all architectures have: Hugging Face's names, then GGUF's."""

    model_type: str
    needed: Mapping[str, str]
    optional: Mapping[str, str] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()  # GGUF's, that repeat what another key says


_DENSE = {"intermediate_size": "feed_forward_length"}
_ROUTING = {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
_EXPERTS = {**_ROUTING, "moe_intermediate_size": "expert_feed_forward_length"}
_SHARED_EXPERT = {"shared_expert_intermediate_size": "expert_shared_feed_forward_length"}
_WINDOW = {"sliding_window": "attention.sliding_window"}
_LINEAR = {
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
_INTERVAL = {"full_attention_interval": "full_attention_interval"}
_LATENT = {
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
    "n_shared_experts": "expert_shared_count",
}
_SHARED_CACHE = {
    "num_kv_shared_layers": "attention.shared_kv_layers",
    "hidden_size_per_layer_input": "embedding_length_per_layer_input",
}

NAMES = {
    "deepseek2": Names(
        "deepseek_v2",
        _DENSE | _EXPERTS | _LATENT,
        {"q_lora_rank": "attention.q_lora_rank", "first_k_dense_replace": "leading_dense_block_count"},
    ),
    "gemma": Names("gemma", _DENSE),
    "gemma2": Names("gemma2", _DENSE, _WINDOW),
    "gemma3": Names("gemma3_text", _DENSE, _WINDOW),
    "gemma3n": Names("gemma3n_text", _DENSE | _WINDOW | _SHARED_CACHE, {"altup_num_inputs": "altup.num_inputs"}),
    "gemma4": Names(
        "gemma4_text",
        _DENSE | _WINDOW | _SHARED_CACHE,
        _EXPERTS,
        idle=frozenset({"attention.value_length", "attention.value_length_swa"}),  # llama.cpp: as the keys'
    ),
    "gpt-oss": Names(
        "gpt_oss",
        _ROUTING | _WINDOW | {"intermediate_size": "expert_feed_forward_length"},
        idle=frozenset({"feed_forward_length"}),
    ),
    "gpt2": Names(
        "gpt2",
        {
            "n_layer": "block_count",
            "n_embd": "embedding_length",
            "n_head": "attention.head_count",
            "n_inner": "feed_forward_length",
            "n_positions": "context_length",
        },
    ),
    "granite": Names("granite", _DENSE),
    "llama": Names("llama", _DENSE, _ROUTING),
    "mistral3": Names("ministral3", _DENSE),
    "olmo2": Names("olmo2", _DENSE),
    "phi2": Names("phi", _DENSE),
    "phi3": Names("phi3", _DENSE, _WINDOW),
    "qwen2": Names("qwen2", _DENSE),
    "qwen2moe": Names("qwen2_moe", _DENSE | _EXPERTS | _SHARED_EXPERT),
    "qwen3": Names("qwen3", _DENSE),
    "qwen35": Names("qwen3_5_text", _DENSE | _LINEAR, _INTERVAL),
    "qwen35moe": Names(
        "qwen3_5_moe_text",
        _EXPERTS | _SHARED_EXPERT | _LINEAR,
        _INTERVAL,
        idle=frozenset({"feed_forward_length"}),
    ),
    "qwen3moe": Names("qwen3_moe", _DENSE | _EXPERTS),
    "qwen3next": Names("qwen3_next", _DENSE | _EXPERTS | _SHARED_EXPERT | _LINEAR, _INTERVAL),
    "smollm3": Names("smollm3", _DENSE),
}
"""By `general.architecture`."""
