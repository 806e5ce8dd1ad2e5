"""Phi 1, 1.5 and 2: attention and a plain network side by side behind one LayerNorm, a bias everywhere.

Source: transformers' `modeling_phi.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.roofline.architecture import Attention, FeedForward, Layer
from harness.roofline.families.parts import assemble, head_size, kv_heads, layer_count
from harness.roofline.keys import flag, size

if TYPE_CHECKING:
    from harness.roofline.architecture import Architecture
    from harness.roofline.families.parts import Config


def phi(config: Config) -> Architecture:
    """Phi before its third version."""
    if flag(config, "qk_layernorm"):
        raise ValueError("qk_layernorm is true: norms of queries and keys are unknown in this family")
    d_model, d_ff = size(config, "hidden_size"), size(config, "intermediate_size")
    n_heads, head_dim = size(config, "num_attention_heads"), head_size(config)
    layers = []
    for n_kv_heads in kv_heads(config, layer_count(config)):
        biases = (n_heads + 2 * n_kv_heads) * head_dim + d_model + d_ff + d_model
        attention = Attention(n_heads, n_kv_heads, head_dim, head_dim)
        layers.append(Layer(attention, FeedForward(d_ff, n_matrices=2), 2 * d_model + biases))
    return assemble(config, layers, vector_elements=2 * d_model + size(config, "vocab_size"))
