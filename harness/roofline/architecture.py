"""A model's shape: the numbers that decide how many bytes it holds and how many a token moves.

Counts are of elements. `hf_config.py` and `gguf_metadata.py` read a shape from what a model says of itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Latent:
    """DeepSeek's multi-head latent attention (MLA): of each token one compressed vector is kept for all heads."""

    kv_rank: int  # width of the compressed keys and values
    rope_dim: int  # of the part that carries the position, kept beside it, once for all heads
    query_rank: int | None  # queries are compressed too; None: they are projected directly


@dataclass(frozen=True)
class Attention:
    """One layer's attention: `n_heads` queries share `n_kv_heads` keys and values."""

    n_heads: int
    n_kv_heads: int
    head_dim: int  # of a query and of a key
    value_dim: int  # of a value
    window: int | None = None  # tokens that the layer looks back on; None: all of them
    shares_cache: bool = False  # reads the keys and values of an earlier layer and keeps none of its own
    gated_output: bool = False  # the query's projection yields a gate of the same width beside it
    projects_values: bool = True  # else the values are the keys, before their norm and position
    latent: Latent | None = None


@dataclass(frozen=True)
class Recurrent:
    """One layer of linear attention or of a state-space model: a state of one size, however long the context."""

    state_elements: int  # of one sequence, in float32; each step reads it and writes it
    matrix_elements: int  # of its projections and of its convolution


@dataclass(frozen=True)
class FeedForward:
    """One layer's feed-forward network: dense, a mixture of experts, or both side by side."""

    d_ff: int  # width of what every token passes: the dense network, shared experts together; 0: none
    n_matrices: int = 3  # of a network: gate, up and down, or two of a plain one
    n_experts: int = 0
    n_experts_used: int = 0  # by each token
    d_expert: int = 0  # width of one expert
    expert_biases: bool = False  # each matrix of an expert has one, read when the expert is


@dataclass(frozen=True)
class Layer:
    """One block of the stack."""

    mixer: Attention | Recurrent
    feed_forward: FeedForward
    vector_elements: int  # norms, biases and their like: one-dimensional, never quantised
    matrix_elements: int = 0  # other projections, such as those of a per-layer embedding


@dataclass(frozen=True)
class Architecture:
    """One decoder-only language model."""

    model_type: str  # as Hugging Face names the family: "llama", "qwen3_moe"
    d_model: int
    vocab_size: int
    tied_embeddings: bool  # the input embedding is the LM head too
    max_context: int | None  # tokens; None where the model states no limit
    layers: tuple[Layer, ...]
    vector_elements: int  # outside the layers: the last norm, with its bias
    position_embeddings: int = 0  # elements of a learned table of positions
    per_layer_embeddings: int = 0  # elements of a table that gives each token one more vector for every layer
    matrix_elements: int = 0  # projections outside the layers, but for the LM head

    @property
    def n_layers(self) -> int:
        """Blocks of the stack."""
        return len(self.layers)

    @property
    def window(self) -> int | None:
        """The longest sliding window; None where no layer has one."""
        windows = (layer.mixer.window for layer in self.layers if isinstance(layer.mixer, Attention))
        return max((window for window in windows if window is not None), default=None)

    @property
    def is_mixture(self) -> bool:
        """Whether it has experts that a token may not use."""
        return any(layer.feed_forward.n_experts for layer in self.layers)
