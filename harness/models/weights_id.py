"""A name for weights, by which rows of the same model on different machines find each other."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING

from harness.models import synthesis
from harness.models.artifact_weights import gguf_header, hf_tensors
from harness.models.hf_config import read_config
from harness.models.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.models.source import ModelSource

SEED = 0
"""Of every preset's synthetic weights."""

_SAMPLE_BYTES = 1024


@functools.lru_cache
def weights_id(source: ModelSource) -> str:
    """A hash that names the weights: equal for a model and for every artifact made from it.

    Of a user's files, the shapes and some bytes of each tensor are hashed, so that 40 GB take no longer
    than 1 GB.
    """
    digest = hashlib.sha256()
    if source.path is None:
        text = json.dumps([PRESETS[source.name], SEED, synthesis.VERSION], sort_keys=True)
        digest.update(text.encode())
        return digest.hexdigest()
    if source.origin == "hf":
        digest.update(json.dumps(read_config(source.path), sort_keys=True).encode())
        places = [
            (name, entry.shape, entry.dtype, entry.path, entry.offset, entry.n_bytes)
            for name, entry in hf_tensors(source.path).items()
        ]
    else:
        places = [
            (tensor.name, tensor.shape, tensor.format, tensor.path, tensor.offset, tensor.n_bytes)
            for tensor in gguf_header(source.path).tensors
        ]
    for name, shape, element, path, offset, n_bytes in sorted(places):
        digest.update(f"{name} {shape} {element}\n".encode())
        for sample in _samples(path, offset, n_bytes):
            digest.update(sample)
    return digest.hexdigest()


def _samples(path: Path, offset: int, n_bytes: int) -> Iterable[bytes]:
    """Some bytes from the start, the middle and the end of a tensor."""
    length = min(_SAMPLE_BYTES, n_bytes)
    with path.open("rb") as file:
        for place in (0, (n_bytes - length) // 2, n_bytes - length):
            file.seek(offset + place)
            yield file.read(length)
