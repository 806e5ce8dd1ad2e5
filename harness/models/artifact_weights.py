"""The weights of a model that the user named: from its files' own tables of tensors, else from its shape."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.models.gguf_file import read_gguf
from harness.models.hf_config import read_config
from harness.models.packed_tensors import parameters
from harness.models.presets import PRESETS
from harness.models.published_format import published_format
from harness.models.safetensors_file import tensor_table
from harness.roofline.architecture import Attention
from harness.roofline.formats import FORMATS
from harness.roofline.nominal import nominal_weights
from harness.roofline.tensor_names import part_of, without_expert
from harness.roofline.weights import Use, Weight, Weights, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from harness.models.gguf_file import GgufHeader
    from harness.models.safetensors_file import TensorEntry
    from harness.models.source import ModelSource
    from harness.roofline.architecture import Architecture

_PLAIN_FORMATS = frozenset({"f32", "f16", "bf16"})
_PLAIN_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})
_BIAS = re.compile(r"[._]bias$")
_KEYS_AND_VALUES = re.compile(r"\.(?:k_proj|v_proj|attn_k|attn_v)\.")
_PER_LAYER_TABLE = re.compile(r"per_layer_token_embd|embed_tokens_per_layer")  # padded or not, as the converter likes


@functools.lru_cache
def weights_of(source: ModelSource, weight_format: str | None) -> Weights:
    """Every tensor with its bytes, in this format; None: as the files have them, or as the model was published.

    Args:
        source: from `source.resolve` or `source.resolve_shape`.
        weight_format: one of `nominal.WEIGHT_FORMATS`. To a plain format ("f32", "f16", "bf16") a Hugging Face
            directory is converted tensor by tensor; other formats are made from the shape.

    Raises:
        UserError: there is no such format, the files are damaged, or a GGUF file is quantised and asked for in another.
    """
    if source.path is not None and source.origin in ("hf", "gguf"):
        if weight_format is None:
            return artifact_weights(source.path, source.architecture)
        plain = is_plain(source.path)
        if source.origin == "gguf" and not plain:
            raise UserError(f"{source.path}: a quantised GGUF file's weights stay in their formats; leave out -w")
        if source.origin == "hf" and plain and weight_format.lower() in _PLAIN_FORMATS:
            return _converted(artifact_weights(source.path, source.architecture), weight_format.lower())
    try:
        return nominal_weights(source.architecture, weight_format or _published_format(source))
    except ValueError as error:
        raise UserError(str(error)) from error


@functools.lru_cache
def artifact_weights(path: Path, architecture: Architecture) -> Weights:
    """The weights that a Hugging Face directory or a GGUF file holds; a layer's experts are summed.

    Only headers are read.

    Raises:
        UserError: the files are damaged.
    """
    return _weights(((name, n_elements, n_bytes) for name, _, n_elements, n_bytes in _table(path)), architecture)


def weights_in_memory(held: Iterable[Mapping[str, Any]], architecture: Architecture) -> Weights:
    """The weights as an engine has them, who may have converted, expanded or quantised them.

    Args:
        held: `backends.base.Held` of each module, as the worker tells them.
        architecture: of the model.
    """
    return _weights(((each["name"], each["n_params"], each["n_bytes"]) for each in held), architecture)


def _weights(tensors: Iterable[tuple[str, int, int]], architecture: Architecture) -> Weights:
    """Of names, parameters and bytes."""
    tied = architecture.tied_embeddings
    found: dict[str, Weight] = {}
    for name, n_elements, n_bytes in tensors:
        part = part_of(name, architecture.n_layers, tied=tied)
        if part is None:
            continue
        whole = without_expert(name)
        layer, use = part
        before = found.get(whole, Weight(whole, layer, 0, 0, use))
        found[whole] = Weight(whole, layer, before.n_elements + n_elements, before.n_bytes + n_bytes, use)
    return Weights(architecture, tuple(found.values()))


def check_tensors(path: Path, architecture: Architecture) -> None:
    """The files must hold the matrices that the shape calls for, layer by layer.

    Vectors are let be: checkpoints keep some beside the parameters.

    Raises:
        UserError: a layer is missing, or has more or fewer elements.
    """
    said_by = "config.json" if path.is_dir() else "its metadata"
    found: Counter[int | None] = Counter()
    for layer, n_elements in _matrices(path, architecture):
        found[layer] += n_elements
    for layer in range(architecture.n_layers):
        if layer not in found:
            raise UserError(f"{path}: no tensors of layer {layer}, but {said_by} has {architecture.n_layers} layers")
    wanted: Counter[int | None] = Counter()
    for tensor in tensors_of(architecture):
        if not (tensor.is_vector or _PER_LAYER_TABLE.search(tensor.name)):
            wanted[tensor.layer] += tensor.n_elements
    for layer in (None, *range(architecture.n_layers)):
        if found[layer] != wanted[layer]:
            where = "outside the layers" if layer is None else f"in layer {layer}"
            raise UserError(
                f"{path}: the matrices {where} have {found[layer]} elements, but {said_by} calls for {wanted[layer]}; "
                "a tensor is missing, of another shape or unknown"
            )


def _matrices(path: Path, architecture: Architecture) -> Iterator[tuple[int | None, int]]:
    """Layer and elements of every tensor that is in use: no elements where it is a vector."""
    for name, shape, n_elements, _ in _table(path):
        part = part_of(name, architecture.n_layers, tied=architecture.tied_embeddings)
        if part is None or part[1] is Use.IDLE:
            continue
        layer, _ = part
        mixer = None if layer is None else architecture.layers[layer].mixer
        # Gemma's checkpoints keep keys and values also of layers that use those of an earlier one.
        unused = isinstance(mixer, Attention) and mixer.shares_cache and _KEYS_AND_VALUES.search(name)
        is_line = sum(length > 1 for length in shape) < 2 and n_elements == math.prod(shape)  # packed: a matrix's bytes
        is_vector = is_line or _BIAS.search(name)  # an expert's bias is a row of many
        yield layer, 0 if unused or is_vector or _PER_LAYER_TABLE.search(name) else n_elements


@functools.lru_cache
def hf_tensors(directory: Path) -> dict[str, TensorEntry]:
    """`tensor_table`, read once."""
    return tensor_table(directory)


@functools.lru_cache
def gguf_header(path: Path) -> GgufHeader:
    """`read_gguf`, read once."""
    return read_gguf(path)


def stored_bytes(path: Path) -> Counter[str]:
    """Bytes by element type, in a file's own words ("BF16", "Q4_K"), of a Hugging Face directory or a GGUF file."""
    sizes: Counter[str] = Counter()
    if path.is_dir():
        for entry in hf_tensors(path).values():
            sizes[entry.dtype] += entry.n_bytes
    else:
        for tensor in gguf_header(path).tensors:
            sizes[tensor.format] += tensor.n_bytes
    return sizes


def is_plain(path: Path) -> bool:
    """Whether every tensor holds one number an element: others are packed."""
    return stored_bytes(path).keys() <= _PLAIN_DTYPES


@functools.lru_cache
def _table(path: Path) -> list[tuple[str, tuple[int, ...], int, int]]:
    """Name, shape, parameters and bytes of each tensor."""
    if path.is_dir():
        table = hf_tensors(path)
        held = parameters(table, read_config(path))
        return [(name, entry.shape, held[name], entry.n_bytes) for name, entry in table.items()]
    return [(each.name, each.shape, each.n_elements, each.n_bytes) for each in gguf_header(path).tensors]


def _converted(weights: Weights, weight_format: str) -> Weights:
    element = FORMATS[weight_format]
    parts = (
        Weight(part.name, part.layer, part.n_elements, element.n_bytes(part.n_elements), part.use)
        for part in weights.parts
    )
    return Weights(weights.architecture, tuple(parts))


def _published_format(source: ModelSource) -> str:
    return published_format(PRESETS[source.name] if source.path is None else read_config(source.path))
