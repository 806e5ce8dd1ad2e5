"""GPT-2: learned positions, plain networks, a bias everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.roofline.architecture import Architecture, Attention, FeedForward, Layer
from harness.roofline.families.parts import layer_count
from harness.roofline.keys import flag, size

if TYPE_CHECKING:
    from harness.roofline.families.parts import Config


def gpt2(config: Config) -> Architecture:
    """GPT-2, by its own names for everything."""
    d_model, n_heads = size(config, "n_embd"), size(config, "n_head")
    if d_model % n_heads:
        raise ValueError(f"n_embd: {d_model} elements cannot be shared by {n_heads} heads")
    head_dim = d_model // n_heads
    d_ff = size(config, "n_inner", default=4 * d_model)
    positions = size(config, "n_positions")
    layer = Layer(
        mixer=Attention(n_heads, n_heads, head_dim, head_dim),
        feed_forward=FeedForward(d_ff, n_matrices=2),
        vector_elements=4 * d_model + 4 * d_model + d_ff + d_model,  # two LayerNorms, then every projection's bias
    )
    return Architecture(
        model_type="gpt2",
        d_model=d_model,
        vocab_size=size(config, "vocab_size"),
        tied_embeddings=flag(config, "tie_word_embeddings"),
        max_context=positions,
        layers=(layer,) * layer_count(config, "n_layer"),
        vector_elements=2 * d_model,
        position_embeddings=positions * d_model,
    )
