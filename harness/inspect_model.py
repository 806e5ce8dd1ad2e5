"""What is really in a model's files, from their headers alone, and what a decode step must read of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.ceilings.memories import HOST
from harness.errors import UserError
from harness.machine.bandwidth.measured import load_cached
from harness.models.artifact_weights import artifact_weights
from harness.models.pickles import refuse_pickles
from harness.models.source import resolve_shape
from harness.models.tensor_types import tensor_types
from harness.roofline.ceiling import Memory, decode_ceiling, whole
from harness.roofline.traffic import kv_bytes_per_token, kv_cache_bytes, kv_read_bytes
from harness.roofline.weights import Use, Weights

if TYPE_CHECKING:
    from harness.machine.hardware import Machine
    from harness.models.source import ModelSource
    from harness.models.tensor_types import TensorType
    from harness.roofline.architecture import Architecture

_KV_ELEMENT_BYTES = 2  # f16


@dataclass(frozen=True)
class MachineCeiling:
    """The decode rate that one memory of this machine allows at most, were the whole model in it."""

    memory: str  # the accelerator's product name, or "cpu"
    empty_tok_s: float  # at the first token
    full_tok_s: float | None  # with the model's whole context in the KV cache; None where it states none
    bandwidth_bytes_s: float  # measured, for as many bytes as the first step reads


@dataclass(frozen=True)
class Inspection:
    """A model's files."""

    source: ModelSource
    weights: Weights
    types: tuple[TensorType, ...]  # the most bytes first

    @property
    def architecture(self) -> Architecture:
        """The model's shape."""
        return self.source.architecture

    @property
    def bits_per_weight(self) -> float:
        """Bits of a parameter on average, scales included."""
        return 8 * self.weights.n_bytes / self.weights.n_params

    @property
    def streamed_bytes(self) -> int:
        """Weights that a decode step of one sequence reads."""
        return round(self.weights.streamed_bytes())

    @property
    def idle_bytes(self) -> int:
        """Weights that decoding does not use: a vision tower, layers that predict more tokens."""
        return sum(part.n_bytes for part in self.weights.parts if part.use is Use.IDLE)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that a token of one sequence adds to an f16 KV cache."""
        return round(kv_bytes_per_token(self.architecture, _KV_ELEMENT_BYTES))

    @property
    def full_kv_bytes(self) -> int | None:
        """An f16 KV cache of the whole context, one sequence; None where the model states no limit."""
        context = self.architecture.max_context
        return None if context is None else round(kv_cache_bytes(self.architecture, context, _KV_ELEMENT_BYTES))


def inspect_model(spec: str) -> Inspection:
    """Read a model's headers.

    Args:
        spec: as `models.source.resolve_shape` takes it, but for a preset.

    Raises:
        UserError: there is no such model, it has no files, or they are damaged.
    """
    source = resolve_shape(spec)
    if source.path and source.origin == "config":
        refuse_pickles(source.path)
    if source.path is None or source.origin == "config":
        what = "a preset" if source.path is None else "a configuration"
        raise UserError(f"{spec} is {what}, a shape without weights; see `tokenroof predict -m {spec}`")
    return Inspection(source, artifact_weights(source.path, source.architecture), tensor_types(source.path))


def ceilings(weights: Weights, machine: Machine) -> list[MachineCeiling]:
    """Of each memory of this machine whose bandwidth has been measured."""
    names = (HOST, *(gpu.name for gpu in machine.gpus))
    return [each for each in (_ceiling(weights, machine, name) for name in names) if each is not None]


def _ceiling(weights: Weights, machine: Machine, name: str) -> MachineCeiling | None:
    measured = load_cached(machine, name)
    if measured is None:
        return None
    arch, read = weights.architecture, weights.streamed_bytes()

    def tok_s(tokens: int) -> float:
        """Of the step that reads so many cached tokens."""
        kv_bytes = float(kv_read_bytes(arch, tokens, _KV_ELEMENT_BYTES))
        memory = Memory(name, measured.curve.at(read + kv_bytes))
        return decode_ceiling(whole(weights, memory), decode_start=tokens, n_steps=1).tok_s

    full = None if arch.max_context is None else tok_s(arch.max_context - 1)
    return MachineCeiling(name, tok_s(0), full, measured.curve.at(read))
