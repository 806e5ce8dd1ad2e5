"""Qwen3-Next, Qwen 3.5 and 3.6: three layers of linear attention (gated delta net), then one of gated attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.roofline.architecture import Attention, FeedForward, Layer, Recurrent
from harness.roofline.families.decoder import sparse_or_dense
from harness.roofline.families.parts import assemble, head_size, kv_heads, layer_count, layer_kinds, mixture
from harness.roofline.keys import count, flag, size

if TYPE_CHECKING:
    from harness.roofline.architecture import Architecture
    from harness.roofline.families.parts import Config

    Network = tuple[FeedForward, int]  # with its vector elements


def qwen3_5(config: Config) -> Architecture:
    """Dense."""
    return _hybrid(config, [(FeedForward(size(config, "intermediate_size")), 0)] * layer_count(config))


def qwen3_5_moe(config: Config) -> Architecture:
    """With experts in every layer."""
    return _hybrid(config, [_sparse(config)] * layer_count(config))


def qwen3_next(config: Config) -> Architecture:
    """With experts in every layer, unless told otherwise."""
    return _hybrid(config, sparse_or_dense(config, _sparse(config)))


def _sparse(config: Config) -> Network:
    shared = count(config, "shared_expert_intermediate_size")
    network = mixture(config, d_expert=size(config, "moe_intermediate_size"), d_ff=shared)
    return network, size(config, "hidden_size")  # the shared expert's gate


def _hybrid(config: Config, networks: list[Network]) -> Architecture:
    n_layers, period = len(networks), size(config, "full_attention_interval")
    kinds = layer_kinds(
        config,
        n_layers,
        lambda index: "linear_attention" if (index + 1) % period else "full_attention",
        {"linear_attention", "full_attention"},
    )
    linear, attention = _delta_net(config), _gated_attention(config)
    mixers = [linear if kind == "linear_attention" else attention for kind in kinds]
    norms = 2 * size(config, "hidden_size")
    return assemble(
        config,
        [
            Layer(mixer, network, norms + mixer_vectors + network_vectors)
            for (mixer, mixer_vectors), (network, network_vectors) in zip(mixers, networks, strict=True)
        ],
    )


def _gated_attention(config: Config) -> tuple[Attention, int]:
    n_heads, head_dim, (n_kv_heads,) = size(config, "num_attention_heads"), head_size(config), kv_heads(config, 1)
    vectors = 2 * head_dim  # norms of queries and keys
    if flag(config, "attention_bias"):
        vectors += 2 * (n_heads + n_kv_heads) * head_dim + size(config, "hidden_size")
    return Attention(n_heads, n_kv_heads, head_dim, head_dim, gated_output=True), vectors


def _delta_net(config: Config) -> tuple[Recurrent, int]:
    d_model = size(config, "hidden_size")
    n_key_heads, key_dim = size(config, "linear_num_key_heads"), size(config, "linear_key_head_dim")
    n_value_heads, value_dim = size(config, "linear_num_value_heads"), size(config, "linear_value_head_dim")
    kernel = size(config, "linear_conv_kernel_dim")
    if n_value_heads % n_key_heads:
        raise ValueError(f"{n_value_heads} linear value heads cannot share {n_key_heads} linear key heads")
    keys, values = n_key_heads * key_dim, n_value_heads * value_dim
    convolved = 2 * keys + values  # queries, keys, values
    inputs = convolved + values + 2 * n_value_heads  # beside those: gate, decay, rate of learning
    mixer = Recurrent(
        # A matrix a head, and what the convolution has to remember.
        state_elements=n_value_heads * key_dim * value_dim + (kernel - 1) * convolved,
        matrix_elements=d_model * inputs + kernel * convolved + values * d_model,
    )
    return mixer, 2 * n_value_heads + value_dim  # decay's scale and offset, the norm of the output
