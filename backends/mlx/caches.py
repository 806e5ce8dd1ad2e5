"""mlx-lm's prompt caches, whose layers are as the model makes them, or quantised ones in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlx_lm.models.cache import KVCache, make_prompt_cache

from backends.base import BackendError
from backends.mlx import weights

if TYPE_CHECKING:
    import mlx.core as mx

_BITS = {"8bit": 8, "4bit": 4}
_GROUP_SIZE = 64  # elements that share a scale and a bias: mlx-lm's own default


def choose(k_format: str, v_format: str, model_format: str) -> tuple[int | None, str]:
    """The bits of a quantised cache (None: not quantised), and the effective format of keys and values alike.

    A scale and a bias are numbers of the model's format: beside float32 weights they take twice as much, which the
    format's name says, "8bit-f32".

    Raises:
        BackendError: MLX has no such cache.
    """
    asked = {k_format, v_format}
    if asked <= {"auto", model_format}:
        return None, model_format
    if len(asked) > 1 or k_format not in _BITS:
        raise BackendError(
            f"mlx keeps keys and values alike, as {model_format} here, {' or '.join(_BITS)}: "
            f"not {k_format} keys and {v_format} values"
        )
    return _BITS[k_format], k_format if model_format in {"f16", "bf16"} else f"{k_format}-{model_format}"


def make(model: Any, bits: int | None) -> list[Any]:
    """An empty cache, one entry a layer; a layer that keeps no keys and values is never quantised.

    Raises:
        NotImplementedError: a layer has a kind of cache that mlx-lm does not quantise.
    """
    layers: list[Any] = make_prompt_cache(model)
    if bits is None:
        return layers
    return [
        layer.to_quantized(group_size=_GROUP_SIZE, bits=bits) if hasattr(layer, "to_quantized") else layer
        for layer in layers
    ]


def n_bytes(cache: list[Any]) -> int:
    """Of every array that the cache holds: a layer's `state` may show only the part in use."""
    return sum(array.nbytes for array in weights.arrays([vars(layer) for layer in _parts(cache)]))


def allocated_tokens(cache: list[Any], context_tokens: int) -> int:
    """What the largest layer holds room for; before the first token, what the context will take."""
    held = [_keys(layer).shape[2] for layer in _parts(cache) if getattr(layer, "keys", None) is not None]
    if held or not cache:
        return max(held, default=0)
    return -(-context_tokens // KVCache.step) * KVCache.step


def _parts(cache: list[Any]) -> list[Any]:
    """The caches of all layers; a layer may have several."""
    return [part for layer in cache for part in getattr(layer, "caches", (layer,))]


def _keys(layer: Any) -> mx.array:
    """`[batch, kv_heads, tokens, …]`: quantised keys come with their scales and biases."""
    keys: mx.array = layer.keys[0] if isinstance(layer.keys, (tuple, list)) else layer.keys
    return keys
