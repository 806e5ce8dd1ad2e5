"""Gemma 3n and 4: layers that share the keys and values of earlier ones, and a vector of its own for every layer.

Sources: transformers' `modeling_gemma3n.py` and `modeling_gemma4.py`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.roofline.architecture import Attention, FeedForward, Layer
from harness.roofline.families.parts import (
    assemble,
    check_shared,
    head_size,
    kv_heads,
    layer_count,
    mixture,
    windows,
)
from harness.roofline.keys import count, flag, per_layer, size

if TYPE_CHECKING:
    from harness.roofline.architecture import Architecture
    from harness.roofline.families.parts import Config

_NORMS = 4  # before and after attention and network


def gemma4(config: Config) -> Architecture:
    """Gemma 4: layers without a window have heads of another size, and in the large models keys that are values too."""
    n_layers, d_model, n_heads = layer_count(config), size(config, "hidden_size"), size(config, "num_attention_heads")
    layer_windows = windows(config, n_layers, lambda index: (index + 1) % 6 != 0)
    layer_windows[-1] = None  # as transformers forces it
    n_own = _layers_with_cache(config, n_layers)
    keys_are_values = flag(config, "attention_k_eq_v")
    d_extra = count(config, "hidden_size_per_layer_input")
    widths = per_layer(config, "intermediate_size", n_layers)
    wider_by = 2 if flag(config, "use_double_wide_mlp") else 1
    layers = []
    for index, (window, d_ff) in enumerate(zip(layer_windows, widths, strict=True)):
        shares = index >= n_own
        n_kv_heads, head_dim = _gemma4_heads(config, index, n_layers, is_global=window is None)
        attention = Attention(
            n_heads,
            n_kv_heads,
            head_dim,
            head_dim,
            window,
            shares_cache=shares,
            projects_values=window is not None or not keys_are_values,
        )
        network, vectors = _gemma4_network(config, d_ff * (wider_by if shares else 1))
        vectors += _NORMS * d_model + (1 if shares else 2) * head_dim + (d_model if d_extra else 0)
        vectors += _biases(config, attention)
        layers.append(Layer(attention, network, vectors, matrix_elements=2 * d_model * d_extra))
    return assemble(config, layers, **_per_layer_embeddings(config, n_layers, d_extra))


def _gemma4_heads(config: Config, index: int, n_layers: int, *, is_global: bool) -> tuple[int, int]:
    """Heads of keys and values, and elements of a head."""
    n_kv_heads, head_dim = kv_heads(config, n_layers)[index], head_size(config)
    global_heads, global_dim = count(config, "num_global_key_value_heads", default=0), size(config, "global_head_dim")
    overrides = config.get("per_layer_config")  # how transformers 5 saves the same
    if isinstance(overrides, Mapping) and overrides:
        stated = overrides.get(str(index)) or {}
        if not isinstance(stated, Mapping):
            raise ValueError(f"per_layer_config has {stated!r} for layer {index}, which is no object")
        own = ChainMap(dict(stated), {"num_key_value_heads": n_kv_heads, "head_dim": head_dim})
        n_kv_heads, head_dim = size(own, "num_key_value_heads"), size(own, "head_dim")
    elif is_global:
        head_dim = global_dim
        n_kv_heads = global_heads if global_heads and flag(config, "attention_k_eq_v") else n_kv_heads
    check_shared(size(config, "num_attention_heads"), n_kv_heads)
    return n_kv_heads, head_dim


def _gemma4_network(config: Config, d_ff: int) -> tuple[FeedForward, int]:
    """A dense network, with a mixture of experts at its side in some models; and its vector elements."""
    if not flag(config, "enable_moe_block"):
        return FeedForward(d_ff), 0
    network = mixture(config, d_expert=size(config, "moe_intermediate_size"), d_ff=d_ff)
    return network, 4 * size(config, "hidden_size") + network.n_experts  # three norms, the router's two scales


def gemma3n(config: Config) -> Architecture:
    """Gemma 3n: beside Gemma 4's, four streams instead of one (AltUp) and a low-rank bypass of attention (LAuReL)."""
    n_layers, d_model, n_heads = layer_count(config), size(config, "hidden_size"), size(config, "num_attention_heads")
    n_own, d_extra = _layers_with_cache(config, n_layers), size(config, "hidden_size_per_layer_input")
    head_dim, n_streams = head_size(config), size(config, "altup_num_inputs")
    streams = n_streams * (n_streams + n_streams**2) + n_streams * d_model  # coefficients, router
    bypass = 2 * d_model * size(config, "laurel_rank")
    layers = []
    for index, (window, d_ff, n_kv_heads) in enumerate(
        zip(
            windows(config, n_layers, lambda index: (index + 1) % 5 != 0),
            per_layer(config, "intermediate_size", n_layers),
            kv_heads(config, n_layers),
            strict=True,
        )
    ):
        shares = index >= n_own
        attention = Attention(n_heads, n_kv_heads, head_dim, head_dim, window, shares_cache=shares)
        # Beside the block's norms: those of the bypass, of the router and of the extra vector, and a scale.
        vectors = (_NORMS + 4) * d_model + (1 if shares else 2) * head_dim + _biases(config, attention)
        layers.append(
            Layer(attention, FeedForward(d_ff), vectors, matrix_elements=streams + bypass + 2 * d_model * d_extra)
        )
    extra = _per_layer_embeddings(config, n_layers, d_extra)
    extra["matrix_elements"] += 2 * (n_streams - 1) * d_model**2  # into the streams and out of them
    return assemble(config, layers, **extra)


def _layers_with_cache(config: Config, n_layers: int) -> int:
    n_shared = count(config, "num_kv_shared_layers")
    if n_shared >= n_layers:
        raise ValueError(f"num_kv_shared_layers is {n_shared}, but there are {n_layers} layers")
    return n_layers - n_shared


def _biases(config: Config, attention: Attention) -> int:
    if not flag(config, "attention_bias"):
        return 0
    own = 0 if attention.shares_cache else 1 + attention.projects_values
    heads = attention.n_heads + own * attention.n_kv_heads
    return heads * attention.head_dim + size(config, "hidden_size")


def _per_layer_embeddings(config: Config, n_layers: int, d_extra: int) -> dict[str, int]:
    d_model, vocabulary = size(config, "hidden_size"), size(config, "vocab_size_per_layer_input")
    return {
        "vector_elements": d_model + d_extra,
        "per_layer_embeddings": vocabulary * n_layers * d_extra,
        "matrix_elements": d_model * n_layers * d_extra,
    }
