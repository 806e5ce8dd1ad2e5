"""Which tensors a checkpoint of each family holds: names, shapes and what each one is for.

Names and orientations are those of the published checkpoints, which transformers and mlx-lm both load: linear
weights are `[out, in]`, except GPT-2's, which are `[in, out]`; GPT-2's names carry no `transformer.` prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_GEMMA = frozenset({"gemma2", "gemma3_text"})
_LLAMA_LIKE = _GEMMA | {"llama", "mistral", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe"}
SYNTHESISABLE = _LLAMA_LIKE | {"gpt2"}
"""Values of `model_type` whose tensors are known by name."""

_Projections = tuple[str, str, str]
_PROJECTIONS: _Projections = ("gate_proj", "up_proj", "down_proj")


class Role(Enum):
    """What a tensor is for; the synthetic weights' distribution depends on it."""

    EMBEDDING = "input embedding, of tokens or of positions"
    LM_HEAD = "LM head that is a tensor of its own"
    NORM = "scale of a norm within a layer"
    FINAL_NORM = "scale of the norm before the LM head"
    QK_NORM = "scale of a norm over each head's query or key"
    RESIDUAL_NORM = "scale of a norm whose result is added to the residual stream"
    ATTENTION_INPUT = "projection to queries, keys or values"
    ATTENTION_OUTPUT = "projection of the attention's result back to the residual stream"
    NORMED_OUTPUT = "projection whose result is normalised before it is added to the residual stream"
    ROUTER = "scores of the experts"
    MLP_INPUT = "gate, up or first projection of a feed-forward network"
    MLP_OUTPUT = "projection of a feed-forward network's result back to the residual stream"
    BIAS = "bias whose result goes on inside a layer"
    RESIDUAL_BIAS = "bias that is added to the residual stream"


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]
    role: Role
    fan_in: int = 1  # length of its dot products, 1 where it has none
    added: float = 0.0  # by the model, to every element


def tensor_specs(config: Mapping[str, Any]) -> list[TensorSpec]:
    """Every tensor of a checkpoint with this Hugging Face configuration, in the order of the forward pass.

    Raises:
        ValueError: the family is none of `SYNTHESISABLE`.
    """
    family = config["model_type"]
    if family == "gpt2":
        return list(_gpt2(config))
    if family in _LLAMA_LIKE:
        return list(_llama_like(config))
    raise ValueError(f"no weights can be synthesised for the family {family!r}")


def _linear(name: str, n_out: int, n_in: int, role: Role, *, bias: bool = False) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (n_out, n_in), role, fan_in=n_in)
    if bias:
        yield TensorSpec(f"{name}.bias", (n_out,), Role.BIAS)


def _norm(name: str, size: int, role: Role = Role.NORM, added: float = 0.0) -> TensorSpec:
    return TensorSpec(f"{name}.weight", (size,), role, added=added)


def _llama_like(config: Mapping[str, Any]) -> Iterator[TensorSpec]:
    d_model, vocab_size = config["hidden_size"], config["vocab_size"]
    yield TensorSpec("model.embed_tokens.weight", (vocab_size, d_model), Role.EMBEDDING)
    for i in range(config["num_hidden_layers"]):
        if config["model_type"] in _GEMMA:
            yield from _gemma_layer(f"model.layers.{i}", config)
        else:
            yield from _layer(f"model.layers.{i}", config)
    yield _norm("model.norm", d_model, Role.FINAL_NORM, _added_to_norms(config))
    if not config["tie_word_embeddings"]:
        yield from _linear("lm_head", vocab_size, d_model, Role.LM_HEAD)


def _layer(name: str, config: Mapping[str, Any]) -> Iterator[TensorSpec]:
    d_model, d_ff = config["hidden_size"], config["intermediate_size"]
    yield _norm(f"{name}.input_layernorm", d_model)
    yield from _attention(f"{name}.self_attn", config, Role.ATTENTION_OUTPUT)
    yield _norm(f"{name}.post_attention_layernorm", d_model)
    match config["model_type"]:
        case "mixtral":
            experts = f"{name}.block_sparse_moe", ("w1", "w3", "w2")
            yield from _mixture_of_experts(*experts, d_model, config["num_local_experts"], d_ff)
        case "qwen3_moe":
            d_expert = config["moe_intermediate_size"]
            yield from _mixture_of_experts(f"{name}.mlp", _PROJECTIONS, d_model, config["num_experts"], d_expert)
        case "phi3":
            yield from _linear(f"{name}.mlp.gate_up_proj", 2 * d_ff, d_model, Role.MLP_INPUT)
            yield from _linear(f"{name}.mlp.down_proj", d_model, d_ff, Role.MLP_OUTPUT)
        case _:
            yield from _mlp(f"{name}.mlp", _PROJECTIONS, d_model, d_ff, Role.MLP_OUTPUT)


def _gemma_layer(name: str, config: Mapping[str, Any]) -> Iterator[TensorSpec]:
    """What attention and network give is normalised before it is added to the residual stream."""
    d_model, added = config["hidden_size"], _added_to_norms(config)
    yield _norm(f"{name}.input_layernorm", d_model, added=added)
    yield from _attention(f"{name}.self_attn", config, Role.NORMED_OUTPUT)
    yield _norm(f"{name}.post_attention_layernorm", d_model, Role.RESIDUAL_NORM, added)
    yield _norm(f"{name}.pre_feedforward_layernorm", d_model, added=added)
    yield from _mlp(f"{name}.mlp", _PROJECTIONS, d_model, config["intermediate_size"], Role.NORMED_OUTPUT)
    yield _norm(f"{name}.post_feedforward_layernorm", d_model, Role.RESIDUAL_NORM, added)


def _added_to_norms(config: Mapping[str, Any]) -> float:
    return 1.0 if config["model_type"] in _GEMMA else 0.0


def _attention(name: str, config: Mapping[str, Any], output: Role) -> Iterator[TensorSpec]:
    d_model, n_heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or d_model // n_heads
    d_query, d_kv = n_heads * head_dim, config["num_key_value_heads"] * head_dim
    family = config["model_type"]
    bias = family == "qwen2"
    if family == "phi3":
        yield from _linear(f"{name}.qkv_proj", d_query + 2 * d_kv, d_model, Role.ATTENTION_INPUT)
    else:
        yield from _linear(f"{name}.q_proj", d_query, d_model, Role.ATTENTION_INPUT, bias=bias)
        yield from _linear(f"{name}.k_proj", d_kv, d_model, Role.ATTENTION_INPUT, bias=bias)
        yield from _linear(f"{name}.v_proj", d_kv, d_model, Role.ATTENTION_INPUT, bias=bias)
    if family in ("gemma3_text", "qwen3", "qwen3_moe"):
        yield _norm(f"{name}.q_norm", head_dim, Role.QK_NORM, _added_to_norms(config))
        yield _norm(f"{name}.k_norm", head_dim, Role.QK_NORM, _added_to_norms(config))
    yield from _linear(f"{name}.o_proj", d_model, d_query, output)


def _mlp(name: str, projections: _Projections, d_model: int, d_ff: int, output: Role) -> Iterator[TensorSpec]:
    gate, up, down = projections
    yield from _linear(f"{name}.{gate}", d_ff, d_model, Role.MLP_INPUT)
    yield from _linear(f"{name}.{up}", d_ff, d_model, Role.MLP_INPUT)
    yield from _linear(f"{name}.{down}", d_model, d_ff, output)


def _mixture_of_experts(
    name: str, projections: _Projections, d_model: int, n_experts: int, d_expert: int
) -> Iterator[TensorSpec]:
    yield from _linear(f"{name}.gate", n_experts, d_model, Role.ROUTER)
    for i in range(n_experts):
        yield from _mlp(f"{name}.experts.{i}", projections, d_model, d_expert, Role.MLP_OUTPUT)


def _gpt2(config: Mapping[str, Any]) -> Iterator[TensorSpec]:
    d_model = config["n_embd"]
    d_ff = config.get("n_inner") or 4 * d_model
    yield TensorSpec("wte.weight", (config["vocab_size"], d_model), Role.EMBEDDING)
    yield TensorSpec("wpe.weight", (config["n_positions"], d_model), Role.EMBEDDING)
    for i in range(config["n_layer"]):
        layer = f"h.{i}"
        yield from _layer_norm(f"{layer}.ln_1", d_model)
        yield from _conv1d(f"{layer}.attn.c_attn", d_model, 3 * d_model, Role.ATTENTION_INPUT)
        yield from _conv1d(f"{layer}.attn.c_proj", d_model, d_model, Role.ATTENTION_OUTPUT)
        yield from _layer_norm(f"{layer}.ln_2", d_model)
        yield from _conv1d(f"{layer}.mlp.c_fc", d_model, d_ff, Role.MLP_INPUT)
        yield from _conv1d(f"{layer}.mlp.c_proj", d_ff, d_model, Role.MLP_OUTPUT)
    yield from _layer_norm("ln_f", d_model, Role.FINAL_NORM)


def _layer_norm(name: str, size: int, role: Role = Role.NORM) -> Iterator[TensorSpec]:
    yield _norm(name, size, role)
    yield TensorSpec(f"{name}.bias", (size,), Role.BIAS)


def _conv1d(name: str, n_in: int, n_out: int, role: Role) -> Iterator[TensorSpec]:
    """GPT-2's linear layer: the weight is `[in, out]`."""
    to_residual = role in (Role.ATTENTION_OUTPUT, Role.MLP_OUTPUT)
    yield TensorSpec(f"{name}.weight", (n_in, n_out), role, fan_in=n_in)
    yield TensorSpec(f"{name}.bias", (n_out,), Role.RESIDUAL_BIAS if to_residual else Role.BIAS)
