"""What types a model's tensors have, and how many bytes of each there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.models.artifact_weights import gguf_header, hf_tensors
from harness.models.hf_config import read_config
from harness.models.packed_tensors import is_beside, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class TensorType:
    """All tensors of one element type."""

    name: str  # "Q4_K", "BF16"; of packed numbers "4-bit in U32", of what comes with them "scales in F16"
    n_tensors: int
    n_params: int
    n_bytes: int


def tensor_types(path: Path) -> tuple[TensorType, ...]:
    """The tensors of a Hugging Face directory or a GGUF file by type, the most bytes first; only headers are read.

    Raises:
        UserError: the files are damaged, or packed in a way that is not known.
    """
    found: dict[str, TensorType] = {}
    for name, n_params, n_bytes in _typed(path):
        before = found.get(name, TensorType(name, 0, 0, 0))
        found[name] = TensorType(name, before.n_tensors + 1, before.n_params + n_params, before.n_bytes + n_bytes)
    return tuple(sorted(found.values(), key=lambda each: -each.n_bytes))


def _typed(path: Path) -> Iterator[tuple[str, int, int]]:
    """The type, parameters and bytes of each tensor."""
    if path.is_file():
        for tensor in gguf_header(path).tensors:
            yield tensor.format, tensor.n_elements, tensor.n_bytes
        return
    table = hf_tensors(path)
    held = parameters(table, read_config(path))
    for name, entry in table.items():
        n_params = held[name]
        packed = (
            f"{8 * entry.n_bytes / n_params:g}-bit in {entry.dtype}" if n_params > entry.n_elements else entry.dtype
        )
        yield f"scales in {entry.dtype}" if is_beside(name) else packed, n_params, entry.n_bytes
