"""A model's weights as tensors with bytes: which ones a decode step reads, and which lie in which layer.

A shape gives the tensors and their elements (`tensors_of`); bytes come from an artifact's own tensor table where there
is one, else from a format's definition (`formats.py`). Names are those of GGUF without the layer's prefix.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from harness.roofline.architecture import Architecture, Attention
from harness.roofline.parts import WHOLE, Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.roofline.architecture import FeedForward


_OF_THE_INPUT = "per_layer_model_proj"  # Gemma 3n and 4: read in each step, but not part of the output layer


class Use(Enum):
    """What a decode step does with a tensor."""

    READ = "read whole by every step"
    ROUTED = "experts: only the chosen ones are read"
    LOOKED_UP = "a table of which a step reads one row a sequence"
    IDLE = "not part of decoding: a vision tower, layers for multi-token prediction"


@dataclass(frozen=True)
class Tensor:
    """One tensor that a shape calls for; the experts of a layer are one."""

    name: str
    layer: int | None  # None outside the stack
    n_elements: int
    use: Use
    is_vector: bool = False  # norms, biases: formats leave them as they are


@dataclass(frozen=True)
class Weight:
    """One tensor with its bytes."""

    name: str
    layer: int | None
    n_elements: int
    n_bytes: int
    use: Use


@dataclass(frozen=True)
class Weights:
    """All weights of a model in one format or artifact."""

    architecture: Architecture
    parts: tuple[Weight, ...]

    @property
    def n_params(self) -> int:
        """Parameters, a tied tensor once."""
        return sum(part.n_elements for part in self.parts)

    @property
    def n_bytes(self) -> int:
        """Resident bytes, a tied tensor once."""
        return sum(part.n_bytes for part in self.parts)

    @property
    def output_bytes(self) -> int:
        """The output layer as llama.cpp counts it: the LM head (also where it is the input embedding) and last norm."""
        outside = (part for part in self.parts if part.layer is None and part.use is Use.READ)
        return sum(part.n_bytes for part in outside if not part.name.startswith(_OF_THE_INPUT))

    def layer_bytes(self, layer: int) -> int:
        """Resident bytes of one layer of the stack."""
        return self._resident_by_layer[layer]

    def expert_bytes(self, layer: int) -> int:
        """Resident bytes of one layer's experts, all of them."""
        return self._by_layer[layer][1]

    def streamed_bytes(
        self, batch: int = 1, layers: range | None = None, *, output: bool = True, parts: Part = WHOLE
    ) -> float:
        """Bytes that one decode step must read, all sequences agreeing on their experts: the fewest possible.

        Args:
            batch: sequences; of a looked-up table each reads one row, which is not counted.
            layers: only these layers of the stack; None: all.
            output: with the LM head and the last norm.
            parts: only these parts of the layers.
        """
        del batch  # the fewest experts are those of one token
        return self._streamed(1, layers, output=output, parts=parts)

    def expected_streamed_bytes(
        self, batch: int, layers: range | None = None, *, output: bool = True, parts: Part = WHOLE
    ) -> float:
        """The same where each sequence chooses its experts at random: `n (1 - (1 - k/n)^batch)` distinct ones."""
        return self._streamed(batch, layers, output=output, parts=parts)

    def _streamed(self, draws: int, layers: range | None, *, output: bool, parts: Part) -> float:
        total = float(self._read_outside) if output else 0.0
        for index in range(self.architecture.n_layers) if layers is None else layers:
            read, routed = self._by_layer[index]
            if Part.DENSE in parts:
                total += read
            if Part.EXPERTS in parts:
                total += routed * _share_read(self.architecture.layers[index].feed_forward, draws)
        return total

    @functools.cached_property
    def _read_outside(self) -> int:
        return sum(part.n_bytes for part in self.parts if part.layer is None and part.use is Use.READ)

    @functools.cached_property
    def _resident_by_layer(self) -> list[int]:
        sizes = [0] * self.architecture.n_layers
        for part in self.parts:
            if part.layer is not None:
                sizes[part.layer] += part.n_bytes
        return sizes

    @functools.cached_property
    def _by_layer(self) -> list[tuple[int, int]]:
        """Of each layer the bytes that every step reads, and those of all its experts."""
        read, routed = [0] * self.architecture.n_layers, [0] * self.architecture.n_layers
        for part in self.parts:
            if part.layer is not None and part.use in (Use.READ, Use.ROUTED):
                (read if part.use is Use.READ else routed)[part.layer] += part.n_bytes
        return list(zip(read, routed, strict=True))


def _share_read(network: FeedForward, draws: int) -> float:
    """Share of a layer's experts that so many independent tokens read."""
    if not network.n_experts:
        return 0.0
    return float(1 - (1 - network.n_experts_used / network.n_experts) ** draws)


def expected_experts(arch: Architecture, draws: int) -> float:
    """Distinct experts that so many independent tokens read in a layer: the mean over the layers that have any."""
    networks = [layer.feed_forward for layer in arch.layers if layer.feed_forward.n_experts]
    return sum(network.n_experts * _share_read(network, draws) for network in networks) / len(networks)


def tensors_of(arch: Architecture) -> tuple[Tensor, ...]:
    """Every tensor that a shape calls for, a tied one once."""
    table = arch.vocab_size * arch.d_model
    first = Tensor("token_embd", None, table, Use.READ if arch.tied_embeddings else Use.LOOKED_UP)
    positions = Tensor("position_embd", None, arch.position_embeddings, Use.LOOKED_UP)
    per_layer = Tensor("per_layer_token_embd", None, arch.per_layer_embeddings, Use.LOOKED_UP)
    outside = Tensor("per_layer_model_proj", None, arch.matrix_elements, Use.READ)
    head = Tensor("output", None, 0 if arch.tied_embeddings else table, Use.READ)
    norm = Tensor("output_norm", None, arch.vector_elements, Use.READ, is_vector=True)
    body = (tensor for index in range(arch.n_layers) for tensor in _layer_tensors(arch, index))
    return tuple(tensor for tensor in (first, positions, per_layer, outside, *body, norm, head) if tensor.n_elements)


def _layer_tensors(arch: Architecture, index: int) -> Iterator[Tensor]:
    layer, d_model = arch.layers[index], arch.d_model
    yield Tensor("vectors", index, layer.vector_elements, Use.READ, is_vector=True)
    if isinstance(layer.mixer, Attention):
        for name, n_elements in _attention(layer.mixer, d_model).items():
            yield Tensor(name, index, n_elements, Use.READ)
    else:
        yield Tensor("ssm", index, layer.mixer.matrix_elements, Use.READ)
    yield Tensor("per_layer_proj", index, layer.matrix_elements, Use.READ)
    network = layer.feed_forward
    names = ("ffn_gate", "ffn_up", "ffn_down")[-network.n_matrices :]
    for name in names:
        yield Tensor(name, index, d_model * network.d_ff, Use.READ)
    if network.n_experts:
        yield Tensor("ffn_gate_inp", index, d_model * network.n_experts, Use.READ)
        for name in names:
            yield Tensor(f"{name}_exps", index, network.n_experts * d_model * network.d_expert, Use.ROUTED)
        if network.expert_biases:
            biases = (len(names) - 1) * network.d_expert + d_model
            yield Tensor("ffn_exps_bias", index, network.n_experts * biases, Use.ROUTED, is_vector=True)


def _attention(attention: Attention, d_model: int) -> dict[str, int]:
    queries, keys = attention.n_heads * attention.head_dim, attention.n_kv_heads * attention.head_dim
    values, output = attention.n_kv_heads * attention.value_dim, attention.n_heads * attention.value_dim
    if attention.latent is None:
        own = {} if attention.shares_cache else {"attn_k": d_model * keys}
        if own and attention.projects_values:
            own["attn_v"] = d_model * values
        gate = 2 if attention.gated_output else 1
        return {"attn_q": gate * d_model * queries, **own, "attn_output": output * d_model}
    latent = attention.latent
    if latent.query_rank is None:
        query = {"attn_q": d_model * queries}
    else:
        query = {"attn_q_a": d_model * latent.query_rank, "attn_q_b": latent.query_rank * queries}
    uncompressed = attention.n_heads * (attention.head_dim - latent.rope_dim + attention.value_dim)
    return {
        **query,
        "attn_kv_a_mqa": d_model * (latent.kv_rank + latent.rope_dim),
        "attn_kv_b": latent.kv_rank * uncompressed,
        "attn_output": output * d_model,
    }
