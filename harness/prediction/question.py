"""What a prediction is asked: a model in its format, and the request of one sequence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

from harness.prediction.efficiency import is_mlx_format
from harness.roofline.placement import needs
from harness.roofline.traffic import kv_bytes_per_token, kv_cache_bytes, prefill_flops

if TYPE_CHECKING:
    from harness.roofline.placement import Needs
    from harness.roofline.weights import Weights
    from harness.workload import Case


class _KvFormat(TypedDict):
    k_element_bytes: float
    v_element_bytes: float


@dataclass(frozen=True, eq=False)  # equal only to itself: a cache need not hash every tensor to find it
class Question:
    """A model in its format, and the request of one sequence."""

    weights: Weights
    case: Case
    k_element_bytes: float = 2
    v_element_bytes: float = 2
    weight_format: str | None = None  # as it was asked for; None: as the artifact has its tensors

    @property
    def kv(self) -> _KvFormat:
        """The KV format, as the arithmetic takes it."""
        return {"k_element_bytes": self.k_element_bytes, "v_element_bytes": self.v_element_bytes}

    @cached_property
    def is_mlx(self) -> bool:
        """Whether the weights are in one of MLX's formats; of quantised tensors only MLX's have `biases`."""
        if self.weight_format is not None:
            return is_mlx_format(self.weight_format)
        return any(part.name.endswith(".biases") for part in self.weights.parts)

    @cached_property
    def needed(self) -> Needs:
        """Of the whole model in one memory."""
        return needs(self.weights, context=self.case.context_tokens, **self.kv)

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """In all layers."""
        return round(kv_bytes_per_token(self.weights.architecture, **self.kv))

    @cached_property
    def kv_cache_bytes(self) -> int:
        """When the request's last token is out, to the byte."""
        return round(kv_cache_bytes(self.weights.architecture, self.case.context_tokens, **self.kv))

    @cached_property
    def prefill_flops(self) -> int:
        """Of the prompt, after the depth."""
        return prefill_flops(self.weights.architecture, self.case.n_prompt, self.case.n_depth)

    @property
    def n_steps(self) -> int:
        """Decode steps that a rate is told for: those of the case, or the one that would follow."""
        return max(self.case.n_steps, 1)
