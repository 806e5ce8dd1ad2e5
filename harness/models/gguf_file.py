"""Headers of GGUF files: metadata and the table of tensors, no tensor data.

The `gguf` package's own reader takes seconds for the vocabulary of a current model; this one a fraction of
one. The sizes of llama.cpp's element formats are still the package's. Format: llama.cpp's `docs/gguf.md`,
versions 2 and 3.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import UserError
from harness.models.gguf_parts import all_parts

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path
    from typing import BinaryIO

# struct codes by GGUF's numbers of the scalar value types.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4  # ggml's
_MAX_ELEMENTS = 2**63 - 1  # ggml counts them in 64 bits
# Longer than any, so that a damaged length is not taken for hours of zeros; vocabularies take some megabytes.
_MAX_HEADER_BYTES = 200_000_000
_END = "it ends too early"
_N_PARTS, _N_TENSORS = "split.count", "split.tensors.count"
_BIG_ENDIAN = 2**16  # a version read in the other order of bytes is a multiple of it
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class GgufTensor:
    """Where one tensor lies: `offset` bytes from the start of `path`."""

    path: Path
    name: str
    shape: tuple[int, ...]  # innermost dimension first, as GGUF has it
    format: str  # ggml's name: "BF16", "Q4_K"
    offset: int
    n_bytes: int

    @property
    def n_elements(self) -> int:
        """Product of the shape."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """What a model's file or files say of themselves."""

    path: Path  # of a split model, the first part: what llama.cpp is given
    metadata: dict[str, object]
    tensors: tuple[GgufTensor, ...]


def read_gguf(path: Path) -> GgufHeader:
    """The metadata and the tensor table of a GGUF file; of any part of a split model, those of the whole model.

    Raises:
        UserError: not a GGUF file, damaged, shorter than its table says, a part is missing, or the `gguf` package is.
    """
    header = _read_file(path)
    n_parts = header.metadata.get(_N_PARTS, 1)
    if not isinstance(n_parts, int) or n_parts < 2:
        return header
    parts = [header if part == path else _read_file(part) for part in all_parts(path, n_parts)]
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    promised = parts[0].metadata.get(_N_TENSORS, len(tensors))
    names = {tensor.name for tensor in tensors}
    if not len(tensors) == len(names) == promised:
        raise UserError(
            f"{path}: its {n_parts} parts hold {len(names)} different tensors, and the first promises {promised}: "
            "they are not of one model; copy them again"
        )
    return GgufHeader(parts[0].path, parts[0].metadata, tensors)  # the others have none of the model's


def _read_file(path: Path) -> GgufHeader:
    try:
        file_bytes = path.stat().st_size
        with path.open("rb") as file:
            header = _read(_Stream(file, min(file_bytes, _MAX_HEADER_BYTES)), path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: damaged or truncated within its header ({error}); copy it again") from error
    end = max((tensor.offset + tensor.n_bytes for tensor in header.tensors), default=0)
    if file_bytes < end:
        raise UserError(f"{path}: truncated: {file_bytes} bytes, its header promises {end}; copy it again")
    return header


class _Row(NamedTuple):
    """One row of the tensor table, without its name."""

    shape: tuple[int, ...]
    format: int  # ggml's number
    offset: int  # from the start of the data


class _Stream:
    """Little-endian values, one after the other."""

    def __init__(self, file: BinaryIO, n_bytes: int) -> None:
        self._file = file
        self._left = n_bytes
        self.position = 0

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > self._left:  # also keeps a damaged length from asking for all memory
            raise ValueError(_END)
        self._left -= n_bytes
        self.position += n_bytes
        return self._file.read(n_bytes)

    def scalars(self, code: str, count: int) -> tuple[int | float | bool, ...]:
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))

    def integer(self, code: str) -> int:
        return int(self.scalars(code, 1)[0])

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """In one tight loop: a vocabulary and its merges are hundreds of thousands."""
        read, unpack, left = self._file.read, _LENGTH.unpack, self._left
        found = []
        for _ in range(count):
            if left < _LENGTH.size:
                raise ValueError(_END)
            (n_bytes,) = unpack(read(_LENGTH.size))
            left -= _LENGTH.size + n_bytes
            if left < 0:
                raise ValueError(_END)
            found.append(read(n_bytes).decode("utf-8", errors="replace"))
        self.position += self._left - left
        self._left = left
        return found

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalars(_scalar(kind), 1)[0]
        element, count = self.integer("I"), self.integer("Q")
        return self.strings(count) if element == _STRING else self.scalars(_scalar(element), count)


def _scalar(kind: int) -> str:
    if kind not in _SCALARS:  # arrays of arrays among them, which llama.cpp does not read either
        raise ValueError(f"a value of type {kind}")
    return _SCALARS[kind]


def _read(stream: _Stream, path: Path) -> GgufHeader:
    if stream.take(4) != b"GGUF":
        raise UserError(f"{path}: not a GGUF file; a Hugging Face model is given as its directory")
    version = stream.integer("I")
    if version and not version % _BIG_ENDIAN:
        raise UserError(f"{path}: a big-endian GGUF file, for another kind of machine; download the usual one")
    if version not in (2, 3):
        raise UserError(f"{path}: GGUF version {version} is not supported, only 2 and 3")
    n_tensors, n_values = stream.integer("Q"), stream.integer("Q")
    metadata: dict[str, object] = {}
    for _ in range(n_values):
        key = _new(stream.string(), metadata)
        metadata[key] = stream.value(stream.integer("I"))
    rows: dict[str, _Row] = {}
    for _ in range(n_tensors):
        name = _new(stream.string(), rows)
        rows[name] = _row(stream)
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError("general.alignment is no length")
    start = _aligned(stream.position, alignment)
    return GgufHeader(path, metadata, tuple(_tensors(rows, start, alignment, path)))


def _new(name: str, known: Container[str]) -> str:
    """Every name occurs once, and is one; zeros where a table should be have none."""
    if not name or name in known:
        raise ValueError(f"the name {name!r} twice" if name else "an empty name")
    return name


def _row(stream: _Stream) -> _Row:
    n_dimensions = stream.integer("I")
    if n_dimensions > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor of {n_dimensions} dimensions")
    shape = tuple(int(size) for size in stream.scalars("Q", n_dimensions))
    if math.prod(shape) > _MAX_ELEMENTS:
        raise ValueError(f"a tensor of shape {shape}")
    return _Row(shape, stream.integer("I"), stream.integer("Q"))


def _tensors(rows: dict[str, _Row], start: int, alignment: int, path: Path) -> Iterator[GgufTensor]:
    """The table with bytes; each tensor must begin where the one before ends, as llama.cpp demands."""
    sizes = _format_sizes()
    end = 0
    for name, row in rows.items():
        if row.format not in sizes:
            raise UserError(
                f"{path}: tensor {name!r} has element format {row.format}, which the installed gguf package does not "
                "know: the file is newer (pip install --upgrade gguf) or damaged"
            )
        label, block_elements, block_bytes = sizes[row.format]
        if row.offset != end:
            raise ValueError(f"tensor {name!r} at byte {row.offset}, not {end}")
        if row.shape and row.shape[0] % block_elements:
            raise ValueError(f"tensor {name!r} of {label} with rows of {row.shape[0]}")
        n_bytes = math.prod(row.shape) // block_elements * block_bytes
        yield GgufTensor(path, name, row.shape, label, start + row.offset, n_bytes)
        end = _aligned(end + n_bytes, alignment)


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _format_sizes() -> dict[int, tuple[str, int, int]]:
    """Name, elements of a block and bytes of a block, by ggml's number of the format."""
    try:
        import gguf  # noqa: PLC0415  # an extra, like every engine
    except ImportError as error:
        raise UserError('reading GGUF needs the gguf package: pip install "tokenroof[llama]"') from error
    return {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
