"""The model families that llama.cpp computes as transformers does, and the configurations it would change.

Sources: llama.cpp's graphs (`src/models/*.cpp`) for what is built in, its loader (`src/llama-model.cpp`) for
the metadata, transformers' configuration classes for the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.models.gguf_export import hyperparameters
from harness.models.gguf_export.config import ADVICE, real, unsupported
from harness.models.gguf_export.rope import rope_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.models.gguf_export.config import Config, Hyperparameters


@dataclass(frozen=True)
class Family:
    """How one Hugging Face architecture is written as GGUF."""

    architecture: str  # GGUF's name
    fixed: Mapping[
        str, Any
    ]  # config keys that llama.cpp does not read, and the only value (a tuple: values) it computes
    hyperparameters: Callable[[Config], Hyperparameters]
    rotates_pairs: bool = False  # RoPE turns elements 2i and 2i+1; transformers turns i and i + head_dim/2
    conv1d: bool = False  # linear layers are stored [in, out]
    norms_less_one: bool = False  # a norm's weights are stored less 1; llama.cpp multiplies by what is stored
    rope_kinds: tuple[str, ...] = ("default", "linear")
    ignores_window: bool = False  # transformers reads sliding_window, llama.cpp has no window
    window_default: int | None = None  # sliding_window of a config without the key


def family_of(config: Config) -> Family:
    """The family of a `config.json`, checked: llama.cpp will compute what the configuration says.

    Raises:
        UserError: another architecture, or a value that llama.cpp would ignore; the message names the key.
    """
    stated = config.get("architectures")
    name = stated[0] if isinstance(stated, list) and stated else stated
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise UserError(f"config.json: architectures: {name!r} is not one of {', '.join(FAMILIES)}; {ADVICE}")
    for key, computed in family.fixed.items():
        value = config.get(key)
        any_of = computed if isinstance(computed, tuple) else (computed,)
        if value is None:
            value = _DEFAULTS.get(key, any_of[0])
        if value not in any_of:
            raise unsupported(key, value, family.architecture)
    window = config.get("sliding_window", family.window_default)
    if family.ignores_window and window and real(config, "sliding_window", window) < config["max_position_embeddings"]:
        raise unsupported("sliding_window", window, family.architecture)
    _, rope_kind = rope_of(config)
    if rope_kind not in family.rope_kinds:
        raise unsupported("rope_type", rope_kind, family.architecture)
    return family


# transformers' default of a missing key, where it is not what llama.cpp computes.
_DEFAULTS = {"norm_topk_prob": False}

_PLAIN = {"quantization_config": None}
_SILU = _PLAIN | {"hidden_act": "silu"}
_UNBIASED = _SILU | {"attention_bias": False}
_QWEN2 = _SILU | {"use_sliding_window": False}
_QWEN3 = _QWEN2 | {"attention_bias": False}
_QWEN3_MOE = _QWEN3 | {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
_GEMMA = _PLAIN | {"attention_bias": False, "use_bidirectional_attention": False, "tie_word_embeddings": True}
# Of old checkpoints: "gelu" means the same, as transformers says too.
_GEMMA1 = _GEMMA | {"hidden_act": ("gelu_pytorch_tanh", "gelu")}
_GEMMA2 = _GEMMA | {"hidden_activation": "gelu_pytorch_tanh"}
_GEMMA3 = _GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None}
_PHI = _PLAIN | {"hidden_act": "gelu_new", "qk_layernorm": False, "tie_word_embeddings": False}
_GPT2 = _PLAIN | {
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}

FAMILIES = {
    "LlamaForCausalLM": Family(
        "llama", _SILU, hyperparameters.llama, rotates_pairs=True, rope_kinds=("default", "linear", "llama3")
    ),
    "MistralForCausalLM": Family(
        "llama", _SILU, hyperparameters.llama, rotates_pairs=True, ignores_window=True, window_default=4096
    ),
    "MixtralForCausalLM": Family("llama", _SILU, hyperparameters.mixtral, rotates_pairs=True, ignores_window=True),
    "Qwen2ForCausalLM": Family("qwen2", _QWEN2, hyperparameters.square_heads),
    "Qwen3ForCausalLM": Family("qwen3", _QWEN3, hyperparameters.llama),
    "Qwen3MoeForCausalLM": Family("qwen3moe", _QWEN3_MOE, hyperparameters.qwen3_moe),
    "GemmaForCausalLM": Family("gemma", _GEMMA1, hyperparameters.gemma, norms_less_one=True),
    "Gemma2ForCausalLM": Family("gemma2", _GEMMA2, hyperparameters.gemma2, norms_less_one=True),
    "Gemma3ForCausalLM": Family("gemma3", _GEMMA3, hyperparameters.gemma3, norms_less_one=True),
    "PhiForCausalLM": Family("phi2", _PHI, hyperparameters.phi),
    "Phi3ForCausalLM": Family(
        "phi3", _SILU, hyperparameters.phi3, rope_kinds=("default", "longrope"), ignores_window=True
    ),
    "SmolLM3ForCausalLM": Family(
        "smollm3",
        _UNBIASED | {"mlp_bias": False, "use_sliding_window": False},
        hyperparameters.smollm3,
        rotates_pairs=True,
    ),
    "Olmo2ForCausalLM": Family("olmo2", _UNBIASED | {"tie_word_embeddings": False}, hyperparameters.square_heads),
    "GraniteForCausalLM": Family(
        "granite", _UNBIASED | {"mlp_bias": False}, hyperparameters.granite, rotates_pairs=True
    ),
    "GPT2LMHeadModel": Family("gpt2", _GPT2, hyperparameters.gpt2, conv1d=True),
}
"""By the first of `architectures` in config.json."""
