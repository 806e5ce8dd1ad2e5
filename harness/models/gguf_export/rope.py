"""RoPE, as a `config.json` has it and as GGUF has it: metadata, and tensors that divide the frequencies.

Sources: transformers' `modeling_rope_utils.py`; llama.cpp's loader and converter (`src/llama-model.cpp`,
`conversion/phi.py`).
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.errors import UserError
from harness.models.gguf_export.config import head_dim, real, required

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.models.gguf_export.config import Config, Hyperparameters

_USUAL_BASE = 10_000.0
_OLDER_NAMES = {"su": "longrope"}


def rope_of(config: Config) -> tuple[Mapping[str, Any], str]:
    """RoPE's parameters and type, of the layers that see all tokens where others have their own.

    They are found by the name that transformers gives them since 5, or by the older one.

    Raises:
        UserError: what the configuration has there is no object.
    """
    key = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    rope = _object(config, key)
    rope = _object(rope, "full_attention") or rope
    return rope, _kind(rope)


def window_rope(config: Config) -> tuple[float, str]:
    """Base and type of the layers with a sliding window, in a family that gives them a RoPE of their own."""
    rope = _object(_object(config, "rope_parameters"), "sliding_attention")
    return real(rope, "rope_theta", real(config, "rope_local_base_freq", _USUAL_BASE)), _kind(rope)


def partial_factor(config: Config, usual: float = 1.0) -> float:
    """Of each head's elements, the part that RoPE turns."""
    return real(rope_of(config)[0], "partial_rotary_factor", real(config, "partial_rotary_factor", usual))


def rope_keys(config: Config, *, usual_base: float = _USUAL_BASE, usual_part: float = 1.0) -> Hyperparameters:
    """Metadata.

    Args:
        config: of a family in whose graph llama.cpp has this type of RoPE.
        usual_base: where the configuration states none.
        usual_part: likewise, of `partial_factor`.

    Raises:
        UserError: a parameter is missing.
    """
    rope, kind = rope_of(config)
    keys: Hyperparameters = {
        "rope.dimension_count": int(head_dim(config) * partial_factor(config, usual_part)),
        "rope.freq_base": _base(config, usual_base),
    }
    if kind == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": real(rope, "factor")}
    if kind == "longrope":
        keys |= {
            "rope.scaling.original_context_length": _original_context(config),
            "rope.scaling.attn_factor": _long_attention_factor(config),
        }
    return keys


def rope_tensors(config: Config) -> dict[str, NDArray[np.float32]]:
    """What divides each RoPE frequency, `[rotated elements / 2]`, by GGUF's name; nothing where no such is needed.

    Raises:
        UserError: a parameter is missing.
    """
    rope, kind = rope_of(config)
    if kind == "llama3":
        return {"rope_freqs.weight": _llama3_factors(config)}
    if kind == "longrope":
        names = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
        return {name: _factors(rope, key) for name, key in names.items()}
    return {}


def _object(config: Config, key: str) -> Mapping[str, Any]:
    """The object under a key; an empty one where there is none."""
    value = config.get(key) or {}
    if not isinstance(value, Mapping):
        raise UserError(f"config.json: {key} is {reprlib.repr(value)}, not an object")
    return value


def _kind(rope: Mapping[str, Any]) -> str:
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    return _OLDER_NAMES.get(kind, kind)


def _factors(rope: Mapping[str, Any], key: str) -> NDArray[np.float32]:
    listed = required(rope, key)
    if not isinstance(listed, list):
        raise UserError(f"config.json: {key} is {reprlib.repr(listed)}, not a list")
    return np.array([real({key: each}, key) for each in listed], np.float32)


def _base(config: Config, usual: float = _USUAL_BASE) -> float:
    return real(rope_of(config)[0], "rope_theta", real(config, "rope_theta", usual))


def _original_context(config: Config) -> int:
    key = "original_max_position_embeddings"
    rope = rope_of(config)[0]
    original = real(rope if rope.get(key) else config, key)
    if original <= 1:  # whose logarithm is divided by
        raise UserError(f"config.json: {key} is {original:g}, too few")
    return int(original)


def _long_attention_factor(config: Config) -> float:
    """By which LongRoPE makes queries and keys longer, in short texts too."""
    rope, original = rope_of(config)[0], _original_context(config)
    stretched = real(rope, "factor", required(config, "max_position_embeddings") / original)
    usual = math.sqrt(1 + math.log(stretched) / math.log(original)) if stretched > 1 else 1.0
    return real(rope, "attention_factor", usual)


def _llama3_factors(config: Config) -> NDArray[np.float32]:
    """As Llama 3.1 has it.

    Wavelengths beyond `original / low_freq_factor` are stretched by `factor`, those within
    `original / high_freq_factor` are kept, and the frequency is interpolated between the two. Source:
    `apply_scaling` in Meta's llama-models, `models/llama3/model.py`.
    """
    rope, _ = rope_of(config)
    factor, low, high = (real(rope, f"{name}factor") for name in ("", "low_freq_", "high_freq_"))
    original = real(rope, "original_max_position_embeddings", required(config, "max_position_embeddings"))
    if not (factor > 0 and low < high):
        raise UserError(f"config.json: llama3's RoPE has factor {factor:g}, low {low:g} and high {high:g}")
    exponents = np.arange(0, head_dim(config), 2, dtype=np.float64) / head_dim(config)
    wavelengths = 2 * math.pi * _base(config) ** exponents
    kept = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    factors: NDArray[np.float32] = (1 / ((1 - kept) / factor + kept)).astype(np.float32)
    return factors
