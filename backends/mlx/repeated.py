"""One of mlx-lm's models whose weights are a pool of numbers over and over, computed when they are needed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx_lm.utils

from backends.mlx.weights import older_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backends.base import Repeated


def open_model(config: Mapping[str, Any], tensors: Mapping[str, Repeated]) -> tuple[Any, dict[str, Any]]:
    """The model that `weights.open_model` would give, were these tensors in a directory's files.

    Args:
        config: as in a `config.json`.
        tensors: by Hugging Face's names.

    Raises:
        ValueError: mlx-lm does not know the architecture, or wants other tensors.
    """
    known = {**config, **older_names(config)}
    model_class, arguments_class = mlx_lm.utils._get_classes(known)  # noqa: SLF001  # as its own `load_model` does
    model = model_class(arguments_class.from_dict(known))
    pools = {id(tensor.pool): mx.array(tensor.pool).view(mx.bfloat16) for tensor in tensors.values()}
    arrays = {name: _array(tensor, pools[id(tensor.pool)]) for name, tensor in tensors.items()}
    if hasattr(model, "sanitize"):
        arrays = model.sanitize(arrays)
    model.eval()
    model.load_weights(list(arrays.items()))
    return model, known


def _array(tensor: Repeated, pool: mx.array) -> mx.array:
    """Not evaluated yet."""
    n_elements = math.prod(tensor.shape)
    from_start = mx.concatenate([pool[tensor.start :], pool[: tensor.start]])
    times = -(-n_elements // pool.size)
    return mx.tile(from_start, times)[:n_elements].reshape(tensor.shape)
