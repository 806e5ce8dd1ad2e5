"""What a session works with, chosen from its request when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from backends.torch import modes
from backends.torch.caches import QUANTIZED, choose, stored
from backends.torch.fitting import fit

if TYPE_CHECKING:
    from backends.base import LoadRequest
    from backends.torch.weights import Weights


@dataclass(frozen=True)
class Setup:
    """A model's surroundings.

    Attributes:
        device: The model's.
        config: Of its text part.
        weights: The model's.
        mode: Asked for: "auto" or one of `modes.MODES`.
        cache_kind: One of `caches.kinds()`; None: the backend's own.
        cache_format: Of keys and values, by the name that the cache knows.
        cache_name: The model's argument that takes the cache.
        kv_format: In which keys and values are stored.
        unquantised: How many of the latest tokens a quantised cache keeps as they are.
    """

    device: torch.device
    config: Any
    weights: Weights
    mode: str
    cache_kind: str | None
    cache_format: str
    cache_name: str
    kv_format: str
    unquantised: int

    @property
    def max_context(self) -> int | None:
        """The configuration's `max_position_embeddings`."""
        limit: int | None = getattr(self.config, "max_position_embeddings", None)
        return limit

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether the mode may run a step of fixed shapes."""
        return modes.has_fixed_shapes(self.mode, self.device, self.weights)


def set_up(model: Any, request: LoadRequest, weights: Weights) -> Setup:
    """Choose, and change the model so that it runs with what was chosen.

    Raises:
        BackendError: the model, the mode or the KV format is none that this backend can run.
    """
    device, config = torch.device(model.device), model.config.get_text_config()
    options = dict(request.engine_options)
    formats = (request.kv_k_format, request.kv_v_format)
    kind, cache_format = choose(options.pop("cache", None), formats, model, weights.plain)
    kv_format, unquantised = cache_format, 0
    if kind == QUANTIZED:
        kv_format, unquantised = stored(cache_format, config, weights.plain)
    return Setup(
        device,
        config,
        weights,
        mode=modes.asked(options, device, kind),
        cache_kind=kind,
        cache_format=cache_format,
        cache_name=fit(model, own_attention=kind is None),
        kv_format=kv_format,
        unquantised=unquantised,
    )
