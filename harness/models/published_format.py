"""The weight format that a model's configuration says its weights were published in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import UserError

_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_METHODS = {"mxfp4": "mxfp4_bf16", "fp8": "fp8"}
_MLX_GROUP = 64  # of a name without one
_OTHERWISE = "name a format that comes near with -w"


def published_format(config: Mapping[str, Any]) -> str:
    """A name that `nominal_weights` knows; bf16 where the configuration says nothing.

    Raises:
        UserError: the weights are quantised in a way that has no such name, or what is said of them is no name.
    """
    text = config.get("text_config")
    levels = [config, text] if isinstance(text, Mapping) else [config]
    for key in ("quantization_config", "quantization"):
        for level in levels:
            if level.get(key):
                return _quantised(key, level[key])
    for level in levels:
        for key in ("dtype", "torch_dtype"):
            if level.get(key):
                return _plain(key, level[key])
    return "bf16"


def _quantised(key: str, quantisation: object) -> str:
    if not isinstance(quantisation, Mapping):
        raise UserError(f"config.json: {key} is {quantisation!r}, not an object; {_OTHERWISE}")
    method = quantisation.get("quant_method")
    if isinstance(method, str) and method in _METHODS:
        return _METHODS[method]
    if method is None and "bits" in quantisation:  # mlx-lm's
        group = quantisation.get("group_size", _MLX_GROUP)
        return f"{quantisation['bits']}bit" if group == _MLX_GROUP else f"{quantisation['bits']}bit-g{group}"
    raise UserError(f"config.json: weights quantised by {method!r}; {_OTHERWISE}")


def _plain(key: str, dtype: object) -> str:
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise UserError(f"config.json: {key} is {dtype!r}, which is none of {', '.join(_DTYPES)}; {_OTHERWISE}")
    return _DTYPES[dtype]
