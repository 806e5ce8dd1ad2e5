"""Checkpoints that are quantised already: what quantised them, and which engine reads that."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

# Beside torch and transformers, by Hugging Face's `quant_method`: what transformers needs to load it.
_TORCH = {
    "awq": ("gptqmodel", "accelerate"),
    "bitsandbytes": ("bitsandbytes", "accelerate"),
    "compressed-tensors": ("compressed_tensors",),
    "fp8": ("accelerate",),
    "gptq": ("optimum", "gptqmodel"),
    "mxfp4": ("accelerate",),
    "torchao": ("torchao",),
}
_MLX = frozenset({"mlx", "awq", "mxfp4", "modelopt"})
_MLX_SOME_FAMILIES = frozenset({"compressed-tensors", "fp8"})  # it tells by itself of which


def method_of(config: Mapping[str, Any]) -> str | None:
    """What quantised a checkpoint: a `quant_method` of Hugging Face's, or "mlx"; None where nothing did."""
    text = config.get("text_config")
    for level in (config, text) if isinstance(text, Mapping) else (config,):
        for key in ("quantization_config", "quantization"):
            said = level.get(key)
            if isinstance(said, Mapping):
                return str(said.get("quant_method") or "mlx")
    return None


def obstacle(method: str, backend: str) -> str | None:
    """Why an engine cannot load a checkpoint that was quantised so; None where it may.

    Args:
        method: from `method_of`.
        backend: a name of `backends.registry`.
    """
    if backend == "mlx" and method not in _MLX | _MLX_SOME_FAMILIES:
        return f"mlx-lm is not known to read weights quantised by {method}; {_readers(method)}"
    if backend == "llama.cpp":
        return f"it reads .gguf files, and weights quantised by {method} do not become one; {_readers(method)}"
    if backend == "torch":
        if method not in _TORCH:
            return f"transformers is not known to read weights quantised by {method}; {_readers(method)}"
        missing = [name for name in _TORCH[method] if importlib.util.find_spec(name) is None]
        if missing:
            install = f"pip install {' '.join(name.replace('_', '-') for name in missing)}"
            needs = f"transformers needs {' and '.join(missing)} for weights quantised by {method}: {install}"
            return f"{needs}; mlx can without" if method in _MLX else needs
    return None


def _readers(method: str) -> str:
    names = [name for name, known in (("torch", _TORCH), ("mlx", _MLX)) if method in known]
    return f"{' and '.join(names)} can" if names else "no engine here is known to"
