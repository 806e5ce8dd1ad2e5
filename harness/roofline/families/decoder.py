"""Llama and the families that differ from it in norms, biases, windows or experts.

Sources: transformers' configuration and modelling files of each family.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.roofline.architecture import Attention, FeedForward, Layer
from harness.roofline.families.parts import (
    assemble,
    expert_count,
    head_size,
    kv_heads,
    layer_count,
    mixture,
    windows,
)
from harness.roofline.keys import count, flag, is_list, per_layer, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.roofline.architecture import Architecture
    from harness.roofline.families.parts import Config

    Network = tuple[FeedForward, int]  # with its vector elements


@dataclass(frozen=True)
class Block:
    """Vectors of one block, where they are not Llama's."""

    n_norms: int = 2  # of the width of the model
    head_norms: bool = False  # one for a head's query, one for its key
    wide_norms: bool = False  # one for the queries of all heads, one for their keys
    qkv_biases: bool = False  # also without `attention_bias`, which adds one to the output too
    sinks: bool = False  # one element a head


def llama(config: Config) -> Architecture:
    """Llama, Gemma, Granite, Mistral, and Phi-3, whose fused projections hold the same weights."""
    return _decoder(config, Block(), _dense(config))


def smollm3(config: Config) -> Architecture:
    """SmolLM 3: if there is a window, it is of the layers without rotary positions, as a rule every fourth."""
    rotary, period = config.get("no_rope_layers"), size(config, "no_rope_layer_interval", default=4)
    if is_list(rotary) and len(rotary) == layer_count(config):
        return _decoder(config, Block(), _dense(config), lambda index: not rotary[index])
    return _decoder(config, Block(), _dense(config), lambda index: (index + 1) % period == 0)


def olmo2(config: Config) -> Architecture:
    """OLMo 2: norms after attention and network, not before."""
    return _decoder(config, Block(wide_norms=True), _dense(config))


def qwen2(config: Config) -> Architecture:
    """Qwen 2 and 2.5."""
    return _decoder(config, Block(qkv_biases=True), _dense(config), _late(config))


def qwen3(config: Config) -> Architecture:
    """Qwen 3, dense."""
    return _decoder(config, Block(head_norms=True), _dense(config), _late(config))


def gemma2(config: Config) -> Architecture:
    """Gemma 2: every other layer has a window, and what leaves a part of a block is normalised too."""
    return _decoder(config, Block(n_norms=4), _dense(config), lambda index: index % 2 == 0)


def gemma3(config: Config) -> Architecture:
    """Gemma 3: five layers with a window, then one without."""
    period = size(config, "sliding_window_pattern", default=6)
    return _decoder(config, Block(n_norms=4, head_norms=True), _dense(config), lambda index: (index + 1) % period != 0)


def mixtral(config: Config) -> Architecture:
    """Mixtral: every layer a mixture of experts."""
    network = mixture(config, d_expert=size(config, "intermediate_size"))
    return _decoder(config, Block(), [(network, 0)] * layer_count(config))


def qwen2_moe(config: Config) -> Architecture:
    """Qwen 1.5 and 2 with experts: a gate decides how much of the shared expert each token gets."""
    shared = size(config, "shared_expert_intermediate_size")
    sparse = mixture(config, d_expert=size(config, "moe_intermediate_size"), d_ff=shared)
    n_dense = count(config, "max_window_layers")
    return _decoder(
        config,
        Block(qkv_biases=flag(config, "qkv_bias", default=True)),
        sparse_or_dense(config, (sparse, size(config, "hidden_size"))),
        lambda index: index % 2 == 0 and index < n_dense,
    )


def qwen3_moe(config: Config) -> Architecture:
    """Qwen 3 with experts."""
    sparse = mixture(config, d_expert=size(config, "moe_intermediate_size"))
    return _decoder(config, Block(head_norms=True), sparse_or_dense(config, (sparse, 0)))


def gpt_oss(config: Config) -> Architecture:
    """OpenAI's open models: every other layer has a window, and experts and router have biases."""
    network = mixture(config, d_expert=size(config, "intermediate_size"), expert_biases=True)
    networks = [(network, network.n_experts)] * layer_count(config)
    return _decoder(config, Block(sinks=True), networks, lambda index: index % 2 == 0)


def sparse_or_dense(config: Config, sparse: Network) -> list[Network]:
    """Every `decoder_sparse_step`-th layer a mixture of experts, but for those in `mlp_only_layers`."""
    n_layers, step = layer_count(config), size(config, "decoder_sparse_step", default=1)
    dense = _dense(config)
    exempt = config.get("mlp_only_layers") or ()
    if not is_list(exempt) or any(index not in range(n_layers) for index in exempt):
        raise ValueError(f"mlp_only_layers is {exempt!r}, not a list of layers from 0 to {n_layers - 1}")
    expert_count(config)
    return [dense[index] if index in exempt or (index + 1) % step else sparse for index in range(n_layers)]


def _decoder(
    config: Config,
    block: Block,
    networks: list[Network],
    usual_window: Callable[[int], bool] = lambda _: True,
) -> Architecture:
    n_layers, d_model = layer_count(config), size(config, "hidden_size")
    n_heads, head_dim = size(config, "num_attention_heads"), head_size(config)
    all_biases = flag(config, "attention_bias")
    layers = []
    for (network, network_vectors), n_kv_heads, window in zip(
        networks, kv_heads(config, n_layers), windows(config, n_layers, usual_window), strict=True
    ):
        vectors = block.n_norms * d_model + network_vectors
        vectors += 2 * head_dim if block.head_norms else 0
        vectors += (n_heads + n_kv_heads) * head_dim if block.wide_norms else 0
        vectors += n_heads if block.sinks else 0
        vectors += (n_heads + 2 * n_kv_heads) * head_dim if all_biases or block.qkv_biases else 0
        vectors += d_model if all_biases else 0
        layers.append(Layer(Attention(n_heads, n_kv_heads, head_dim, head_dim, window), network, vectors))
    return assemble(config, layers)


def _dense(config: Config) -> list[Network]:
    biased = flag(config, "mlp_bias")
    widths = per_layer(config, "intermediate_size", layer_count(config))
    d_model = size(config, "hidden_size")
    return [(FeedForward(d_ff), 2 * d_ff + d_model if biased else 0) for d_ff in widths]


def _late(config: Config) -> Callable[[int], bool]:
    """Qwen's dense models window their last layers, if any."""
    first = count(config, "max_window_layers")
    return lambda index: index >= first
