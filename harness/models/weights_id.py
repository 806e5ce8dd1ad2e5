"""A name for weights, by which rows of the same model on different machines find each other."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any

from harness.models import synthesis
from harness.models.artifact_weights import gguf_header, hf_tensors
from harness.models.digest import Span, digest, expected_digest
from harness.models.gguf_file import read_gguf
from harness.models.hf_config import read_config
from harness.models.presets import PRESETS
from harness.models.progress import labelled
from harness.models.safetensors_file import tensor_table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.models.progress import Progress
    from harness.models.source import ModelSource

SEED = 0
"""Of every preset's synthetic weights."""


def weights_id(source: ModelSource, progress: Progress | None = None) -> str:
    """A hash that names the weights: equal for a model and for every artifact made from it.

    Of a user's files all bytes of all tensors count. They are read once; what was found is kept until a file changes.

    Args:
        source: from `source.resolve`.
        progress: called with `(label, done_bytes, total_bytes)`.

    Raises:
        UserError: a file cannot be read, or changes meanwhile.
    """
    if source.path is None:
        return _of_preset(source.name)
    tensors = functools.partial(_tensors, source.path)
    found = digest(_files(source.path), tensors, labelled(progress, f"hashing {source.name}"))
    return _of_files(source.path, found)


def expected_id(source: ModelSource) -> str:
    """The same where it is known without reading a user's files; else one that no weights have.

    Raises:
        UserError: a file cannot be found.
    """
    if source.path is None:
        return _of_preset(source.name)
    return _of_files(source.path, expected_digest(_files(source.path)))


def _of_preset(name: str) -> str:
    text = json.dumps([PRESETS[name], SEED, synthesis.VERSION], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _of_files(path: Path, tensors: str) -> str:
    return hashlib.sha256(json.dumps([_settings(path), tensors], sort_keys=True).encode()).hexdigest()


def _settings(path: Path) -> dict[str, Any]:
    """What else an engine computes by."""
    if path.is_dir():
        return read_config(path)
    metadata = gguf_header(path).metadata
    prefix = f"{metadata['general.architecture']}."
    return {key: value for key, value in metadata.items() if key.startswith(prefix)}


def _files(path: Path) -> set[Path]:
    return {tensor.path for tensor in (hf_tensors(path).values() if path.is_dir() else gguf_header(path).tensors)}


def _tensors(path: Path) -> list[Span]:
    """By the files as they are now, which another read of this process may have found otherwise."""
    if path.is_dir():
        return [
            Span(f"{name} {entry.shape} {entry.dtype}", entry.path, entry.offset, entry.n_bytes)
            for name, entry in tensor_table(path).items()
        ]
    return [
        Span(f"{tensor.name} {tensor.shape} {tensor.format}", tensor.path, tensor.offset, tensor.n_bytes)
        for tensor in read_gguf(path).tensors
    ]
