"""A GGUF file in another weight format, by llama.cpp's own quantiser."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from backends.base import BackendError
from backends.llama_cpp import engine

if TYPE_CHECKING:
    from pathlib import Path

_FILE_TYPE = "LLAMA_FTYPE_MOSTLY_"
_HELD_BYTES = 2**30  # of a tensor's rows at once; llama.cpp's default of 8 GiB may be more than a machine has


def formats() -> tuple[str, ...]:
    """The mixtures that the installed library has names for, in lower case, as "q4_k_m"."""
    llama, _ = engine()
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
    llama, log = engine()
    params = llama.llama_model_quantize_default_params()
    params.ftype = getattr(llama, f"{_FILE_TYPE}{weight_format.upper()}")
    params.nthread = n_threads
    params.max_buf_size = _HELD_BYTES
    log.attach(llama)
    log.clear()
    if llama.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params)):
        raise BackendError(f"llama.cpp cannot make {weight_format}: {log.take_errors()}")
