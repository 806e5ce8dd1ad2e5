"""What families of models have in common: heads, windows, networks, and how they become an architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.roofline.architecture import Architecture, FeedForward
from harness.roofline.keys import count, flag, is_list, per_layer, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harness.roofline.architecture import Layer

    Config = Mapping[str, object]

_MOST_LAYERS = 10_000


def layer_count(config: Config, key: str = "num_hidden_layers") -> int:
    """Blocks of the stack."""
    if (n_layers := size(config, key)) > _MOST_LAYERS:
        raise ValueError(f"{key} is {n_layers}, larger than any model")
    return n_layers


def head_size(config: Config) -> int:
    """Elements of one head: `head_dim`, else the width shared among the queries' heads."""
    d_model, n_heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    if (stated := count(config, "head_dim", default=0)) or d_model % n_heads == 0:
        return stated or d_model // n_heads
    raise ValueError(f"head_dim is missing, and {d_model} elements cannot be shared by {n_heads} heads")


def kv_heads(config: Config, n_layers: int) -> tuple[int, ...]:
    """Heads of keys and values, by layer."""
    n_heads = size(config, "num_attention_heads")
    found = per_layer(config, "num_key_value_heads", n_layers, default=n_heads)
    for n_kv_heads in found:
        check_shared(n_heads, n_kv_heads)
    return found


def check_shared(n_heads: int, n_kv_heads: int) -> None:
    """Each head of keys serves equally many of the queries.

    Raises:
        ValueError: it cannot.
    """
    if n_kv_heads == 0 or n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} attention heads cannot share {n_kv_heads} key-value heads")


def layer_kinds(config: Config, n_layers: int, usual: Callable[[int], str], known: set[str]) -> list[str]:
    """Each layer's kind: from `layer_types`, else as the family has it.

    Args:
        config: the model's.
        n_layers: in the stack.
        usual: kind of a layer, counted from 0.
        known: the kinds that this family may have.

    Raises:
        ValueError: a kind is unknown, or there are more or fewer of them than layers.
    """
    stated = config.get("layer_types")
    if stated is None:
        return [usual(index) for index in range(n_layers)]
    if not is_list(stated) or len(stated) != n_layers:
        n_stated = len(stated) if is_list(stated) else 0
        raise ValueError(f"layer_types names {n_stated} layers, but there are {n_layers}")
    for kind in stated:
        if not isinstance(kind, str) or kind not in known:
            raise ValueError(f"layer_types has {kind!r}, which this family does not know")
    return [str(kind) for kind in stated]


def windows(config: Config, n_layers: int, usual: Callable[[int], bool] = lambda _: True) -> list[int | None]:
    """Each layer's sliding window; None where it sees all tokens.

    Args:
        config: the model's.
        n_layers: in the stack.
        usual: whether the family gives this layer, counted from 0, a window.
    """
    window = count(config, "sliding_window", default=0) or None
    if not flag(config, "use_sliding_window", default=True):  # Qwen states a window and, apart, that it is not used
        window = None
    kinds = layer_kinds(
        config,
        n_layers,
        lambda index: "sliding_attention" if usual(index) else "full_attention",
        {"sliding_attention", "full_attention"},
    )
    return [window if kind == "sliding_attention" else None for kind in kinds]


def mixture(config: Config, *, d_expert: int, d_ff: int = 0, expert_biases: bool = False) -> FeedForward:
    """A mixture of experts, beside a dense network or shared experts of width `d_ff`."""
    n_experts = expert_count(config)
    # transformers' name, OpenAI's own and Gemma's
    names = [name for name in ("num_experts_per_tok", "experts_per_token", "top_k_experts") if config.get(name)]
    used = size(config, names[0] if names else "num_experts_per_tok")
    for name in names:
        if count(config, name) > n_experts:
            raise ValueError(f"{name} is {count(config, name)}, but there are {n_experts} experts")
    return FeedForward(d_ff, n_experts=n_experts, n_experts_used=used, d_expert=d_expert, expert_biases=expert_biases)


def expert_count(config: Config) -> int:
    """Experts of a layer, by whichever of its names is used."""
    found = [count(config, name, default=0) for name in ("num_experts", "num_local_experts", "n_routed_experts")]
    stated = {number for number in found if number}
    if len(stated) > 1:
        raise ValueError(f"num_experts is told as {' and as '.join(map(str, sorted(stated)))}")
    return max(found) or size(config, "num_experts")


def assemble(config: Config, layers: Iterable[Layer], **rest: int) -> Architecture:
    """The whole model: embeddings, layers, last norm.

    Args:
        config: the model's; `tie_word_embeddings` must have the family's default.
        layers: the stack.
        rest: fields of `Architecture` that differ from a model with one RMS norm after its layers.
    """
    d_model = size(config, "hidden_size")
    return Architecture(
        model_type=str(config["model_type"]),
        d_model=d_model,
        vocab_size=size(config, "vocab_size"),
        tied_embeddings=flag(config, "tie_word_embeddings"),
        max_context=count(config, "max_position_embeddings", default=0) or None,
        layers=tuple(layers),
        **{"vector_elements": d_model, **rest},
    )
