"""Parts of a model in memories that work one after the other, and the decode rate that they reach together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.prediction.efficiency import decode_rate
from harness.prediction.hardware import Range
from harness.roofline.parts import Part
from harness.roofline.traffic import kv_read_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.prediction.hardware import Hardware
    from harness.prediction.question import Question
    from harness.roofline.ceiling import Share


@dataclass(frozen=True)
class Held:
    """A part of the model in one memory, which computes there."""

    share: Share
    hardware: Hardware
    on_host: bool = False

    def step_bytes(self, question: Question) -> float:
        """Weights and KV cache that an average decode step reads here."""
        return _step_bytes(question, self.share.layers, self.share.output, self.share.parts)


@lru_cache(4096)  # the same on every device of a catalog
def _step_bytes(question: Question, layers: range, output: bool, parts: Part) -> float:
    case, weights = question.case, question.weights
    contexts = [case.decode_start, case.decode_start + question.n_steps - 1]
    cached = layers if Part.KV in parts else range(0)
    kv_bytes = kv_read_bytes(weights.architecture, contexts, **question.kv, layers=cached).mean()
    return weights.streamed_bytes(1, layers, output=output, parts=parts) + float(kv_bytes)


def decode_tok_s(question: Question, held: Sequence[Held]) -> Range:
    """Tokens a second: the times of the parts add up."""
    rates = [
        decode_rate(each.hardware, each.step_bytes(question), len(each.share.layers) or 1, is_mlx=question.is_mlx)
        for each in held
    ]
    low, mid, high = (1 / sum(1 / getattr(rate, name) for rate in rates) for name in ("low", "mid", "high"))
    return Range(low, mid, high, "; ".join(dict.fromkeys(rate.basis for rate in rates)))
