"""The weight format that a model's configuration says its weights were published in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_METHODS = {"mxfp4": "mxfp4_bf16", "fp8": "fp8"}
_MLX_GROUP = 64  # of a name without one


def published_format(config: Mapping[str, Any]) -> str:
    """A name that `nominal_weights` knows; bf16 where the configuration says nothing.

    Raises:
        UserError: the weights are quantised in a way that has no such name.
    """
    quantisation = config.get("quantization_config") or config.get("quantization") or {}
    method = quantisation.get("quant_method")
    if method in _METHODS:
        return _METHODS[method]
    if method is None and "bits" in quantisation:  # mlx-lm's
        group = quantisation.get("group_size", _MLX_GROUP)
        return f"{quantisation['bits']}bit" if group == _MLX_GROUP else f"{quantisation['bits']}bit-g{group}"
    if quantisation:
        raise UserError(f"config.json: weights quantised by {method!r}; name a format that comes near with -w")
    text = config.get("text_config") or {}
    for values in (config, text):
        dtype = values.get("dtype") or values.get("torch_dtype")
        if dtype in _DTYPES:
            return _DTYPES[dtype]
    return "bf16"
