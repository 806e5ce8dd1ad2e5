"""Safetensors files: reading headers without the tensors, mapping one tensor at a time, writing as a stream.

The `safetensors` library has no bfloat16 for numpy, and writes only tensors that are all in memory at once,
so a model larger than memory is out of its reach. The format: eight bytes of header length, a JSON header,
raw data.
"""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import ml_dtypes
import numpy as np

from harness.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import BinaryIO

    from numpy.typing import NDArray

INDEX_NAME = "model.safetensors.index.json"

_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.safetensors")
# The library's own limit on the header, so that a file of another kind is not read into memory.
_MAX_HEADER_BYTES = 100_000_000
_ALIGNMENT = 8

_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies: `offset` bytes from the start of `path`, `n_bytes` long, C order."""

    path: Path
    dtype: str  # safetensors' own name: "BF16"
    shape: tuple[int, ...]
    offset: int
    n_bytes: int

    @property
    def n_elements(self) -> int:
        """Product of the shape; 1 for a scalar."""
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of one file, by name, in the header's order; no tensor is read.

    Raises:
        UserError: the file cannot be read, is not safetensors, or is shorter than its header says.
    """
    try:
        file_bytes = path.stat().st_size
        with path.open("rb") as file:
            header_bytes = _header_length(file.read(8), file_bytes, path)
            header = json.loads(file.read(header_bytes))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors alike; brackets without end
        raise UserError(f"{path}: not a safetensors file: its header is not JSON") from error
    if not isinstance(header, dict):
        raise UserError(f"{path}: not a safetensors file: its header is not a JSON object")
    header.pop("__metadata__", None)
    data_start = 8 + header_bytes
    entries = {name: _entry(name, value, path, data_start) for name, value in header.items()}
    data_end = data_start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].n_bytes)):
        if entry.offset < data_end:
            raise UserError(f"{path}: damaged header: tensor {name!r} overlaps another")
        data_end = entry.offset + entry.n_bytes
    if file_bytes < data_end:
        raise UserError(f"{path}: truncated: {file_bytes} bytes, its header promises {data_end}; copy it again")
    return entries


def _header_length(prefix: bytes, file_bytes: int, path: Path) -> int:
    if len(prefix) < 8:
        raise UserError(f"{path}: truncated: {file_bytes} bytes are too few for a safetensors file")
    length: int = struct.unpack("<Q", prefix)[0]
    if length > _MAX_HEADER_BYTES:
        raise UserError(f"{path}: not a safetensors file: it claims a header of {length} bytes")
    if 8 + length > file_bytes:
        raise UserError(f"{path}: truncated within its header; copy it again")
    return length


def _entry(name: str, value: Any, path: Path, data_start: int) -> TensorEntry:
    try:
        dtype, shape, (begin, end) = value["dtype"], value["shape"], value["data_offsets"]
        lacking = not isinstance(dtype, str) or not all(type(size) is int for size in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        lacking = True
    if lacking:
        raise UserError(f"{path}: damaged header: tensor {name!r} lacks a dtype, shape or offsets")
    if dtype not in _DTYPES:
        raise UserError(f"{path}: tensor {name!r} has the element type {dtype!r}, which is not supported")
    if begin < 0 or min(shape, default=0) < 0 or end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
        raise UserError(f"{path}: damaged header: the offsets of tensor {name!r} do not fit its shape")
    return TensorEntry(path, dtype, tuple(shape), data_start + begin, end - begin)


def has_weights(directory: Path) -> bool:
    """Whether a model directory has safetensors, or says that it has."""
    return (directory / INDEX_NAME).is_file() or any(directory.glob("*.safetensors"))


def missing_shards(directory: Path) -> list[str]:
    """The safetensors files that the index or the numbers in the files' names promise, and that are not there.

    Raises:
        UserError: the index is unreadable.
    """
    return [name for name in _promised(directory) if not (directory / name).is_file()]


def shard_paths(directory: Path) -> list[Path]:
    """The safetensors files of a model directory: those its index names, else all.

    Raises:
        UserError: there are none, some are missing, or the index is unreadable.
    """
    if missing := missing_shards(directory):
        told = f"{INDEX_NAME} names" if (directory / INDEX_NAME).is_file() else "the others' names call for"
        raise UserError(f"{directory}: missing {', '.join(missing)}, which {told}; copy the model again")
    paths = [directory / name for name in _promised(directory)]
    if not paths:
        raise UserError(f"{directory}: no .safetensors file; other weight formats are not read")
    return paths


def _promised(directory: Path) -> list[str]:
    """Names of the files that make up the model."""
    index = directory / INDEX_NAME
    if index.is_file():
        return names_in_index(index)
    names = {path.name for path in directory.glob("*.safetensors")}
    for found in filter(None, map(_SHARD.fullmatch, sorted(names))):
        count = int(found["count"])
        names |= {f"{found['stem']}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)}
    return sorted(names)


def names_in_index(index: Path) -> list[str]:
    """The files that an index names, each once.

    Raises:
        UserError: it is unreadable, or names a file outside its directory.
    """
    try:
        names = [
            Path(name) for name in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{index}: not a readable index of the weights' files") from error
    for name in names:
        if name.is_absolute() or ".." in name.parts:
            raise UserError(f"{index}: names {name}, which lies outside the model's directory")
    return [str(name) for name in names]


def tensor_table(directory: Path) -> dict[str, TensorEntry]:
    """Every tensor of a model directory, sharded or single, by name.

    Raises:
        UserError: as `shard_paths` and `read_header`.
    """
    table: dict[str, TensorEntry] = {}
    for path in shard_paths(directory):
        table |= read_header(path)
    return table


def open_tensor(entry: TensorEntry) -> NDArray[Any]:
    """The tensor, memory-mapped and read-only: pages are read as they are used.

    Returns:
        An array of `entry.shape`; bfloat16 is `ml_dtypes.bfloat16`.
    """
    dtype = _DTYPES[entry.dtype]
    if entry.n_elements == 0:  # an empty range cannot be mapped
        return np.empty(entry.shape, dtype)
    flat = np.memmap(entry.path, dtype=dtype, mode="r", offset=entry.offset, shape=(entry.n_elements,))
    return flat.reshape(entry.shape)


class StreamWriter:
    """Writes one safetensors file piece by piece, so that no tensor need be in memory as a whole.

    The header comes first in the file, so every shape must be known at the start; then the tensors' data
    follow, in the same order.
    """

    def __init__(self, path: Path, dtype: str, shapes: Mapping[str, Sequence[int]]) -> None:
        """Create `path` and write its header.

        Args:
            path: the new file.
            dtype: of every tensor, as safetensors names it.
            shapes: by tensor name, in the order in which the data will come.
        """
        item_bytes = _DTYPES[dtype].itemsize
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, shape in shapes.items():
            begin, end = end, end + math.prod(shape) * item_bytes
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        self._promised = end
        self._written = 0
        self._file: BinaryIO = path.open("wb", buffering=0)
        self._file.write(struct.pack("<Q", len(text)) + text)

    def write(self, piece: memoryview) -> None:
        """Append raw little-endian data of the next tensors."""
        rest = piece.cast("B")
        while rest:  # an unbuffered write may take less than it is given
            count = self._file.write(rest)
            self._written += count
            rest = rest[count:]

    def close(self) -> None:
        """Close the file.

        Raises:
            ValueError: more or less data was written than the header says.
        """
        self._file.close()
        if self._written != self._promised:
            raise ValueError(f"{self._written} bytes written, the header promises {self._promised}")

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Close; an error inside is not covered up by a complaint about missing data."""
        if error_type is None:
            self.close()
        else:
            self._file.close()
