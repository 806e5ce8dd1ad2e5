"""Weights in another format, by llama.cpp's own quantiser: a GGUF file, or the rows of a matrix."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import numpy as np

from backends.base import BackendError
from backends.llama_cpp import ggml, library
from backends.llama_cpp.ggml import Int, Int64, Pointer, Size

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_FILE_TYPE = "LLAMA_FTYPE_MOSTLY_"
_HELD_BYTES = 2**30  # of a tensor's rows at once; llama.cpp's default of 8 GiB may be more than a machine has


def formats() -> tuple[str, ...]:
    """The mixtures that the installed library has names for, in lower case, as "q4_k_m"."""
    llama, _ = library.start()
    return tuple(name.removeprefix(_FILE_TYPE).lower() for name in dir(llama) if name.startswith(_FILE_TYPE))


def quantise(source: Path, target: Path, weight_format: str, n_threads: int) -> None:
    """Write `source` anew with its matrices in another format.

    Args:
        source: a .gguf file in f32, f16 or bf16.
        target: the new file; after an error it is incomplete.
        weight_format: one of `formats`. Where its blocks do not divide a row, llama.cpp takes another for that tensor.
        n_threads: that it computes with.

    Raises:
        BackendError: llama.cpp refuses, as it does formats that need an importance matrix.
    """
    llama, log = library.start()
    params = llama.llama_model_quantize_default_params()
    params.ftype = getattr(llama, f"{_FILE_TYPE}{weight_format.upper()}")
    params.nthread = n_threads
    params.max_buf_size = _HELD_BYTES
    log.attach(llama)
    log.clear()
    if llama.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params)):
        raise BackendError(f"llama.cpp cannot make {weight_format}: {log.take_errors()}")


def quantise_rows(rows: NDArray[np.float32], element_format: str) -> NDArray[np.uint8]:
    """Rows of a matrix in one of ggml's element formats; several threads may call it at once.

    Args:
        rows: `[rows, length]` in C order; the format's blocks must divide the length.
        element_format: in lower case, as "q4_k"; one that needs no importance matrix.

    Returns:
        `[rows, bytes of a row]`.
    """
    element, (n_rows, length) = ggml.element_type(element_format), rows.shape
    row_bytes = ggml.function("ggml_row_size", Size, Int, Int64)(element, length)
    packed = np.empty((n_rows, row_bytes), np.uint8)
    pack = ggml.function("ggml_quantize_chunk", Size, Int, Pointer, Pointer, Int64, Int64, Int64, Pointer)
    pack(element, rows.ctypes.data, packed.ctypes.data, 0, n_rows, length, None)
    return packed
