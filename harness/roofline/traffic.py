"""What a model weighs and what a token moves: parameters, KV cache bytes, FLOPs.

Everything can be checked with a pencil. Parameter counts hold for the families of the presets (GPT-2,
Llama, Mistral, Qwen2, Qwen3 and its mixture of experts), tensor by tensor; others are counted as Llama's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.roofline.architecture import Architecture


def kv_bytes_per_token(arch: Architecture, bytes_per_element: float) -> float:
    """Bytes that one token of one sequence occupies in the KV cache: keys and values of every layer.

    Args:
        arch: the model's shape.
        bytes_per_element: 2 for f16 and bf16; a block format's average otherwise, scales included.
    """
    return 2 * arch.n_layers * arch.n_kv_heads * arch.head_dim * bytes_per_element


def parameter_count(arch: Architecture) -> int:
    """Parameters of the whole model, a tied tensor once."""
    tables = embedding_parameters(arch) * (1 if arch.tied_embeddings else 2) + _position_parameters(arch)
    return tables + arch.n_layers * (_attention(arch) + _feed_forward(arch)) + _norms(arch)


def streamed_parameters(arch: Architecture) -> int:
    """Parameters that one decode step must read.

    All but tables that are only looked up (an untied input embedding, learned positions) and the experts
    that a token does not use. A tied embedding is the LM head, so it is read.
    """
    idle_experts = arch.n_layers * (arch.n_experts - arch.n_experts_used) * _expert(arch)
    looked_up = _position_parameters(arch) + (0 if arch.tied_embeddings else embedding_parameters(arch))
    return parameter_count(arch) - looked_up - idle_experts


def embedding_parameters(arch: Architecture) -> int:
    """Elements of the input embedding, and as many of the LM head."""
    return arch.vocab_size * arch.d_model


def prefill_flops(arch: Architecture, prompt: int, depth: int = 0, batch: int = 1) -> int:
    """Floating-point operations of a prefill: `batch` prompts of `prompt` tokens, each after `depth` cached ones.

    Two for each weight and token, the LM head for the last position only; and for attention two for each
    element of a query times every key before it, two more for the values.
    """
    head = embedding_parameters(arch)
    body = streamed_parameters(arch) - head
    attended = prompt * depth + prompt * (prompt + 1) // 2
    attention = 4 * arch.n_layers * arch.n_heads * arch.head_dim * attended
    return batch * (2 * prompt * body + 2 * head + attention)


def _attention(arch: Architecture) -> int:
    d_query, d_kv = arch.n_heads * arch.head_dim, arch.n_kv_heads * arch.head_dim
    weights = 2 * arch.d_model * d_query + 2 * arch.d_model * d_kv
    if arch.model_type == "gpt2":
        return weights + d_query + 2 * d_kv + arch.d_model  # every projection has a bias
    if arch.model_type == "qwen2":
        return weights + d_query + 2 * d_kv  # query, key and value have one
    if arch.model_type in ("qwen3", "qwen3_moe"):
        return weights + 2 * arch.head_dim  # a norm for queries, one for keys
    return weights


def _feed_forward(arch: Architecture) -> int:
    if arch.n_experts:
        return arch.n_experts * _expert(arch) + arch.n_experts * arch.d_model  # and the router
    if arch.model_type == "gpt2":
        return 2 * arch.d_model * arch.d_ff + arch.d_ff + arch.d_model
    return 3 * arch.d_model * arch.d_ff


def _expert(arch: Architecture) -> int:
    return 3 * arch.d_model * arch.d_expert


def _norms(arch: Architecture) -> int:
    per_norm = 2 * arch.d_model if arch.model_type == "gpt2" else arch.d_model  # LayerNorm has a bias
    return (2 * arch.n_layers + 1) * per_norm


def _position_parameters(arch: Architecture) -> int:
    return (arch.max_context or 0) * arch.d_model if arch.model_type == "gpt2" else 0
