"""DeepSeek V2 and V3: latent attention, a few dense layers, then shared and routed experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.roofline.architecture import Attention, FeedForward, Latent, Layer
from harness.roofline.families.parts import assemble, layer_count, mixture
from harness.roofline.keys import count, flag, size

if TYPE_CHECKING:
    from harness.roofline.architecture import Architecture
    from harness.roofline.families.parts import Config


def deepseek(config: Config) -> Architecture:
    """V2 and V3; what corrects V3's routing is no parameter, as transformers counts."""
    n_layers, d_model = layer_count(config), size(config, "hidden_size")
    n_dense = count(config, "first_k_dense_replace")
    if n_dense > n_layers:
        raise ValueError(f"first_k_dense_replace is {n_dense}, but there are {n_layers} layers")
    if count(config, "moe_layer_freq", default=1) != 1:
        raise ValueError("moe_layer_freq is not 1: dense layers among the sparse ones are unknown")
    latent = Latent(
        kv_rank=size(config, "kv_lora_rank"),
        rope_dim=size(config, "qk_rope_head_dim"),
        query_rank=count(config, "q_lora_rank", default=0) or None,
    )
    n_heads = size(config, "num_attention_heads")
    attention = Attention(
        n_heads=n_heads,
        n_kv_heads=n_heads,  # once uncompressed
        head_dim=count(config, "qk_nope_head_dim") + latent.rope_dim,
        value_dim=size(config, "v_head_dim"),
        latent=latent,
    )
    vectors = 2 * d_model + latent.kv_rank + (latent.query_rank or 0)  # norms
    if flag(config, "attention_bias"):
        vectors += (latent.query_rank or 0) + latent.kv_rank + latent.rope_dim + d_model
    biased = flag(config, "mlp_bias")

    def layer(network: FeedForward) -> Layer:
        return Layer(attention, network, vectors + (2 * network.d_ff + d_model if biased else 0))

    dense = layer(FeedForward(size(config, "intermediate_size")))
    d_expert = size(config, "moe_intermediate_size")
    sparse = layer(mixture(config, d_expert=d_expert, d_ff=count(config, "n_shared_experts") * d_expert))
    return assemble(config, [dense] * n_dense + [sparse] * (n_layers - n_dense))
