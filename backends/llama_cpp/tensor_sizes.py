"""Bytes of a GGUF file's tensors, and of the layers that they make up."""

from __future__ import annotations

import ctypes
import os
import re
from typing import TYPE_CHECKING

from backends.llama_cpp.ggml import Int64, Pointer, Size, Text, function

if TYPE_CHECKING:
    from pathlib import Path

_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(?:up|down|gate_up|gate)_(?:ch|)exps\.")
_LAYER = re.compile(r"blk\.(\d+)\.")
_PART = re.compile(r"-\d{5}(-of-\d{5}\.gguf)$")


def tensor_bytes(artifact: Path) -> dict[str, int]:
    """Bytes of each tensor of a GGUF file by name, of all the parts of a split one; none where it cannot be read."""
    parts = sorted(artifact.parent.glob(_PART.sub(r"-?????\1", artifact.name))) if _PART.search(artifact.name) else []
    return {name: size for part in parts or [artifact] for name, size in _tensors(part).items()}


def expert_layers(tensors: dict[str, int]) -> set[int]:
    """The layers that have experts."""
    return {int(found[1]) for name in tensors if (found := _EXPERTS.match(name))}


def layer_bytes(tensors: dict[str, int], n_layers: int, n_cpu_moe: int = 0) -> list[int]:
    """Bytes that each layer brings to its device, the output layer last.

    Args:
        tensors: bytes by tensor name.
        n_layers: repeating layers.
        n_cpu_moe: layers whose experts stay in the host's memory, from the first.
    """
    sizes = [0] * (n_layers + 1)
    for name, size in tensors.items():
        experts, layer = _EXPERTS.match(name), _LAYER.match(name)
        if layer and int(layer[1]) < n_layers and not (experts and int(experts[1]) < n_cpu_moe):
            sizes[int(layer[1])] += size
        elif name.startswith("output"):
            sizes[n_layers] += size
    if "output.weight" not in tensors:  # tied: the output layer has a copy of the embedding
        sizes[n_layers] += tensors.get("token_embd.weight", 0)
    return sizes


class _GgufInitParams(ctypes.Structure):
    """`gguf_init_params`."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", Pointer))


def _tensors(part: Path) -> dict[str, int]:
    """Names and bytes by llama.cpp's own reader, which does not copy the vocabulary into Python as the gguf package."""
    open_file = function("gguf_init_from_file", Pointer, Text, _GgufInitParams)
    name = function("gguf_get_tensor_name", Text, Pointer, Int64)
    size = function("gguf_get_tensor_size", Size, Pointer, Int64)
    file = open_file(os.fsencode(part), _GgufInitParams(no_alloc=True, ctx=None))
    if file is None:
        return {}
    try:
        count: int = function("gguf_get_n_tensors", Int64, Pointer)(file)
        return {name(file, index).decode(): size(file, index) for index in range(count)}
    finally:
        function("gguf_free", None, Pointer)(file)
