"""What every family's `config.json` is asked, and the error for what llama.cpp would not honour."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from harness.errors import UserError

Config = Mapping[str, Any]
Hyperparameters = dict[str, int | float | str]
"""GGUF's keys, without the architecture."""

_LARGEST = 1e30  # GGUF keeps numbers in 32 bits
ADVICE = "convert the model with llama.cpp's convert_hf_to_gguf.py and pass the .gguf file"


def unsupported(key: str, value: object, architecture: str) -> UserError:
    """The error for a configuration value that llama.cpp would not honour."""
    shown = reprlib.repr(value)
    return UserError(f"config.json: {key} = {shown}: llama.cpp's {architecture!r} does not compute that; {ADVICE}")


def required(config: Config, key: str) -> Any:
    """The value of a key that the export cannot do without.

    Raises:
        UserError: the key is missing.
    """
    if config.get(key) is None:
        raise UserError(f"config.json: {key} is missing")
    return config[key]


def real(config: Config, key: str, default: float | None = None) -> float:
    """A number; `default` where the key is missing or null.

    Raises:
        UserError: it is missing and has no default, or is something else.
    """
    value = required(config, key) if default is None else config.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:  # NaN is not, either
        raise UserError(f"config.json: {key} is {reprlib.repr(value)}, not a number")
    return float(value)


def head_dim(config: Config) -> int:
    """Elements of one attention head of a family with RoPE."""
    explicit = config.get("head_dim")
    return int(explicit or required(config, "hidden_size") // required(config, "num_attention_heads"))


def n_layers(config: Config) -> int:
    """Repeating layers."""
    return int(config.get("num_hidden_layers") or required(config, "n_layer"))


def n_experts(config: Config) -> int:
    """Experts of a layer: the key in published checkpoints, or the one that transformers saves since 5."""
    return int(config.get("num_experts") or required(config, "num_local_experts"))
