"""Headers of GGUF files: metadata and the table of tensors, no tensor data.

The `gguf` package's own reader takes seconds for the vocabulary of a current model; this one a fraction of
one. The sizes of llama.cpp's element formats are still the package's. Format: llama.cpp's `docs/gguf.md`,
versions 2 and 3.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

# struct codes by GGUF's numbers of the scalar value types.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class GgufTensor:
    """Where one tensor lies: `offset` bytes from the start of the file."""

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
    """What a file says of itself."""

    metadata: dict[str, object]
    tensors: tuple[GgufTensor, ...]


def read_gguf(path: Path) -> GgufHeader:
    """The metadata and the tensor table of a GGUF file.

    Raises:
        UserError: not a GGUF file, damaged, shorter than its table says, or the `gguf` package is missing.
    """
    try:
        file_bytes = path.stat().st_size
        with path.open("rb") as file:
            header = _read(_Stream(file, file_bytes), path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError) as error:
        raise UserError(f"{path}: damaged or truncated within its header; copy it again") from error
    end = max((tensor.offset + tensor.n_bytes for tensor in header.tensors), default=0)
    if file_bytes < end:
        raise UserError(f"{path}: truncated: {file_bytes} bytes, its header promises {end}; copy it again")
    return header


class _Stream:
    """Little-endian values, one after the other."""

    def __init__(self, file: BinaryIO, n_bytes: int) -> None:
        self._file = file
        self._left = n_bytes
        self.position = 0

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > self._left:  # also keeps a damaged length from asking for all memory
            raise ValueError("end of file")
        self._left -= n_bytes
        self.position += n_bytes
        return self._file.read(n_bytes)

    def scalars(self, code: str, count: int) -> tuple[int | float | bool, ...]:
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))

    def integer(self, code: str) -> int:
        return int(self.scalars(code, 1)[0])

    def string(self) -> str:
        return self.take(self.integer("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalars(_SCALARS[kind], 1)[0]
        element, count = self.integer("I"), self.integer("Q")
        if element in _SCALARS:
            return self.scalars(_SCALARS[element], count)
        return [self.value(element) for _ in range(count)]


def _read(stream: _Stream, path: Path) -> GgufHeader:
    if stream.take(4) != b"GGUF":
        raise UserError(f"{path}: not a GGUF file; a Hugging Face model is given as its directory")
    version = stream.integer("I")
    if version not in (2, 3):
        raise UserError(f"{path}: GGUF version {version} is not supported, only 2 and 3")
    n_tensors, n_values = stream.integer("Q"), stream.integer("Q")
    metadata = {stream.string(): stream.value(stream.integer("I")) for _ in range(n_values)}
    table = [_table_row(stream) for _ in range(n_tensors)]
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError("alignment")
    data_start = -(-stream.position // alignment) * alignment
    sizes = _format_sizes()
    return GgufHeader(metadata, tuple(_tensor(*row, data_start, sizes) for row in table))


def _table_row(stream: _Stream) -> tuple[str, tuple[int, ...], int, int]:
    name = stream.string()
    shape = tuple(int(size) for size in stream.scalars("Q", stream.integer("I")))
    return name, shape, stream.integer("I"), stream.integer("Q")


def _tensor(
    name: str,
    shape: tuple[int, ...],
    number: int,
    offset: int,
    data_start: int,
    sizes: dict[int, tuple[str, int, int]],
) -> GgufTensor:
    label, block_elements, block_bytes = sizes[number]
    n_bytes = math.prod(shape) // block_elements * block_bytes
    return GgufTensor(name, shape, label, data_start + offset, n_bytes)


def _format_sizes() -> dict[int, tuple[str, int, int]]:
    """Name, elements of a block and bytes of a block, by ggml's number of the format."""
    try:
        import gguf  # noqa: PLC0415  # an extra, like every engine
    except ImportError as error:
        raise UserError('reading GGUF needs the gguf package: pip install "tokenroof[llama]"') from error
    return {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
