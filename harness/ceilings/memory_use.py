"""What the parts of a model make of the memories they lie in: bytes read and the speed of reading."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.ceilings.memories import HOST, DeviceMemory
from harness.roofline.ceiling import Memory, Share, decode_ceiling
from harness.roofline.parts import Part
from harness.roofline.traffic import kv_read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.roofline.ceiling import Ceiling
    from harness.roofline.weights import Weights
    from harness.tiers.placed import Placed
    from harness.workload import Case

Bandwidth = Callable[[DeviceMemory, float], float | None]
"""Bytes a second of a memory, for as many bytes as a step reads there; None: not known."""

_HALF_PRECISION = {"bf16", "f16"}


@dataclass(frozen=True)
class MemoryUse:
    """What a case reads and computes beside each memory.

    Attributes:
        weights: of the whole model.
        case: the work.
        k_bytes, v_bytes: of an element of the KV cache.
        parts: where each part of the model lies, in the order of a step.
        weight_format: that products are computed in.
        kept_tokens: of a prefix that was to be reused; None where none was.
        memories: by id.
        helpers: memories whose processors may compute what lies in the host's.
    """

    weights: Weights
    case: Case
    k_bytes: float
    v_bytes: float
    parts: tuple[Placed, ...]
    weight_format: str
    kept_tokens: int | None
    memories: Mapping[str, DeviceMemory]
    helpers: tuple[DeviceMemory, ...]

    @property
    def used(self) -> list[DeviceMemory]:
        """The memories that hold something."""
        return [self.memories[name] for name in dict.fromkeys(part.memory for part in self.parts)]

    @property
    def decodes(self) -> bool:
        """Whether it has decode steps that read a KV cache."""
        return self.case.n_steps > 0 and self.case.kv_cache != "off"

    def step_bytes(self, memory: str) -> float:
        """Bytes that an average timed decode step reads in a memory."""
        return sum(
            self.weights.streamed_bytes(1, part.layers, output=part.output, parts=part.parts)
            + (self.kv_bytes(part.layers) if Part.KV in part.parts else 0)
            for part in self.parts
            if part.memory == memory
        )

    def kv_bytes(self, layers: range) -> float:
        """Bytes of KV cache that an average timed decode step reads of these layers, all sequences."""
        case, arch = self.case, self.weights.architecture
        contexts = np.arange(case.decode_start, case.decode_start + case.n_steps)
        return case.batch * float(kv_read_bytes(arch, contexts, self.k_bytes, self.v_bytes, layers).mean())

    def shares(self, bandwidth: Bandwidth) -> list[Share] | None:
        """The parts at a bandwidth; None where one memory has none.

        Args:
            bandwidth: of a memory, for as many bytes as a step reads there.
        """
        shares = []
        for part in self.parts:
            memory = self.memories[part.memory]
            n_bytes = self.step_bytes(part.memory) if self.decodes else self.weights.n_bytes
            if (bytes_s := bandwidth(memory, n_bytes)) is None:
                return None
            tier = Memory(memory.name, bytes_s, self._flops_s(part.memory))
            shares.append(Share(tier, self.weights, part.layers, part.output, part.parts))
        return shares

    def together_bytes_s(self, bandwidth: Bandwidth) -> float:
        """One bandwidth for several memories that work one after the other: all bytes over all time."""
        sizes = {part.memory: self.step_bytes(part.memory) for part in self.parts}
        rates = {name: bandwidth(self.memories[name], size) or math.nan for name, size in sizes.items()}
        return sum(sizes.values()) / sum(size / rates[name] for name, size in sizes.items())

    def _flops_s(self, memory: str) -> float | None:
        """The best rate of matrix products beside a memory; None where one of them is not known."""
        beside = [self.memories[memory], *(self.helpers if memory == HOST else ())]
        rates = [_matrix_rate(each, self.weight_format) for each in beside]
        return None if None in rates else max(rate for rate in rates if rate is not None)

    def decode_ceiling(self, shares: list[Share]) -> Ceiling:
        """Of the timed steps."""
        return decode_ceiling(
            shares,
            decode_start=self.case.decode_start,
            n_steps=self.case.n_steps,
            batch=self.case.batch,
            k_element_bytes=self.k_bytes,
            v_element_bytes=self.v_bytes,
        )


def spec_rate(memory: DeviceMemory, _: float) -> float | None:
    """The vendor's bandwidth; None: not known."""
    return memory.spec_bytes_s


def measured_rate(memory: DeviceMemory, n_bytes: float) -> float | None:
    """The measured bandwidth of reading so many bytes again and again; None: not measured."""
    return memory.measured.curve.at(n_bytes) if memory.measured else None


def _matrix_rate(memory: DeviceMemory, weight_format: str) -> float | None:
    """The best that an engine may compute these weights in: half precision in any type, float32 in its own.

    Quantised weights may be multiplied as integers, whose rate nothing here measures.
    """
    rates = memory.measured.matrix if memory.measured else {}
    if weight_format == "f32":
        return rates["f32"].best if "f32" in rates else None
    return max((rate.best for rate in rates.values()), default=None) if weight_format in _HALF_PRECISION else None
