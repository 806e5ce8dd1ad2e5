"""The KV caches of transformers itself, by the names that its `generate` takes as `cache_implementation`.

They are here to be measured: this backend's own is `attention.KvCache`. Which there are, and which number formats a
quantised one knows, is asked of the installed library.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache, QuantizedCache, StaticCache, cache_utils
from transformers.generation import configuration_utils

from backends.base import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers.cache_utils import Cache

QUANTIZED = "quantized"
_USUAL_GROUP = 64  # elements that share a scale, in formats whose name says none


def kinds() -> tuple[str, ...]:
    """The names, such as "dynamic", "static" and "quantized"."""
    return (*configuration_utils.DYNAMIC_CACHE_IMPLEMENTATIONS, *configuration_utils.STATIC_CACHE_IMPLEMENTATIONS)


def is_offloaded(kind: str) -> bool:
    """Whether that cache keeps its layers in the host's memory, and brings each to the GPU over a CUDA stream."""
    return "offloaded" in kind


def quantised_formats(config: Any) -> tuple[str, ...]:
    """Formats of a quantised cache ("fp8", "quanto", …) that can be made here, for this model.

    They are transformers' backends; some are packages of their own.
    """
    layers = [name for name in vars(cache_utils) if name.endswith("QuantizedLayer")]
    names = [name.removesuffix("QuantizedLayer").lower() for name in layers]
    return tuple(name for name in names if _quantised(name, config) is not None)


def stored(quantised_format: str, config: Any, model_format: str) -> tuple[str, int]:
    """How a quantised cache stores keys and values.

    Args:
        quantised_format: One of `quantised_formats`.
        config: The model's.
        model_format: Its weights' format, which scales and zero points have too.

    Returns:
        The format, "4bit" for groups of 64 elements with a scale and a zero point; and how many of the latest tokens
        may be kept unquantised.
    """
    layer: Any = QuantizedCache(backend=quantised_format, config=config).layers[0]
    if not hasattr(layer, "q_group_size"):  # one scale for the whole tensor
        return quantised_format, 0
    group = "" if layer.q_group_size == _USUAL_GROUP else f"-g{layer.q_group_size}"
    wide = "" if model_format in {"f16", "bf16"} else f"-{model_format}"
    return f"{layer.nbits}bit{group}{wide}", layer.residual_length


def choose(kind: str | None, formats: tuple[str, str], model: Any, model_format: str) -> tuple[str | None, str]:
    """Which cache, and the format of keys and values alike.

    Args:
        kind: One of `kinds()`; None: the backend's own, or a quantised one where the formats ask for it.
        formats: Asked for keys and values; "auto": the model's, or a quantised cache's first.
        model: A transformers model.
        model_format: Its weights' format.

    Returns:
        The kind, None still meaning the backend's own, and the format.

    Raises:
        BackendError: the installed transformers has no such cache, or not for this model or device.
    """
    if kind not in {None, *kinds()}:
        raise BackendError(f"transformers has no cache {kind!r} here; it has: {', '.join(kinds())}")
    if kind is not None and is_offloaded(kind) and model.device.type != "cuda":
        raise BackendError(f"transformers' {kind} cache moves layers over CUDA streams: {model.device} has none")
    asked = set(formats)
    if kind != QUANTIZED and asked <= {"auto", model_format}:
        return kind, model_format
    known = quantised_formats(model.config) if kind in {None, QUANTIZED} else ()
    if known and asked == {"auto"}:
        return QUANTIZED, known[0]
    if len(asked) == 1 and asked <= set(known):
        return QUANTIZED, formats[0]
    has = ", ".join(known if kind == QUANTIZED else (model_format, *known)) or "no format for this model"
    raise BackendError(
        f"the torch backend's {kind or 'KV'} cache has {has}, keys and values alike: "
        f"not {formats[0]} keys and {formats[1]} values"
    )


class LibraryCache:
    """One of transformers' caches, with what a session asks of `attention.KvCache`.

    Args:
        kind: One of `kinds()`.
        config: The model's.
        capacity: Tokens a sequence that it must have room for.
        quantised_format: Of a quantised one: one of `quantised_formats`.

    Attributes:
        past: What the model is given.
        capacity: As asked.
        length: Tokens a sequence that it holds; whoever runs a forward pass advances it afterwards.
    """

    def __init__(self, kind: str, config: Any, capacity: int, quantised_format: str) -> None:
        self.capacity = capacity
        self.length = 0
        self._is_static = "static" in kind
        offloading = is_offloaded(kind)
        if self._is_static:
            self.past: Any = StaticCache(config=config, max_cache_len=capacity, offloading=offloading)
        elif kind == QUANTIZED:
            self.past = QuantizedCache(backend=quantised_format, config=config)
        else:
            self.past = DynamicCache(config=config, offloading=offloading)

    @property
    def allocated_tokens(self) -> int:
        """Tokens a sequence for which there is memory now; of an empty one that grows, what will be needed."""
        return self.capacity if self._is_static else self.length or self.capacity

    @property
    def n_bytes(self) -> int:
        """Of its tensors' memory, also where only a part of it is in use."""
        return storage_bytes(tensors_in([vars(layer) for layer in self.past.layers]))

    @torch.inference_mode()
    def cut(self, keep: int) -> int:
        """Forget what follows the first `keep` tokens; everything, where a layer cannot be cut there."""
        if keep < self.length:
            if keep and all(_can_be_cut(layer) for layer in self.past.layers):
                self.past.crop(keep - self.length)
            else:
                self.past.reset()
                keep = 0
            self.length = keep
        return self.length


def storage_bytes(tensors: Iterator[torch.Tensor]) -> int:
    """Of the memory behind tensors, once where several look into one piece of it."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _quantised(quantised_format: str, config: Any) -> Cache | None:
    try:
        return QuantizedCache(backend=quantised_format, config=config)
    except (ImportError, ValueError):
        return None


def _can_be_cut(layer: Any) -> bool:
    # A dynamic sliding window says that it can be cut, and raises once it has turned over.
    turned_over = layer.get_seq_length() >= getattr(layer, "sliding_window", math.inf)
    return bool(getattr(layer, "is_croppable", False) and not turned_over)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested containers, without counters: those are whole numbers of no dimension."""
    if hasattr(value, "__tensor_flatten__"):  # made of other tensors, and without memory of its own
        yield from tensors_in([getattr(value, name) for name in value.__tensor_flatten__()[0]])
    elif isinstance(value, torch.Tensor):
        if value.dim() or value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
