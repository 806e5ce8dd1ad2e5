"""The devices of ggml's registry, which llama-cpp-python's own API does not show."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from backends.base import Accelerator

# ggml_backend_dev_type: GPU, and IGPU (one that shares the host's memory). BLAS and AMX (ACCEL) are none.
_GPU_TYPES = (1, 2)


@dataclass(frozen=True)
class Gpu:
    """A GPU that this build of llama.cpp can use, and its `ggml_backend_dev_t`."""

    handle: int
    accelerator: Accelerator


def gpus() -> list[Gpu]:
    """Every GPU, in llama.cpp's order."""
    registry, base = _libraries()
    handles = [registry.ggml_backend_dev_get(index) for index in range(registry.ggml_backend_dev_count())]
    return [
        Gpu(handle, _accelerator(base, handle))
        for handle in handles
        if base.ggml_backend_dev_type(handle) in _GPU_TYPES
    ]


def ggml_version() -> str:
    """Version of the ggml library that llama.cpp computes with."""
    _, base = _libraries()
    version: bytes = base.ggml_version()
    return version.decode()


def _accelerator(base: ctypes.CDLL, handle: int) -> Accelerator:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    base.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Accelerator(
        id=base.ggml_backend_dev_name(handle).decode(),
        name=base.ggml_backend_dev_description(handle).decode(),
        memory_bytes=total.value or None,
    )


@functools.cache
def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """The registry's and the devices' library: on Windows a symbol is found only in its own."""
    from llama_cpp._ctypes_extensions import load_shared_library
    from llama_cpp.llama_cpp import _base_path

    device, size = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    registry = load_shared_library("ggml", _base_path)
    _declare(registry.ggml_backend_dev_count, ctypes.c_size_t)
    _declare(registry.ggml_backend_dev_get, device, ctypes.c_size_t)
    base = load_shared_library("ggml-base", _base_path)
    _declare(base.ggml_backend_dev_type, ctypes.c_int, device)
    _declare(base.ggml_backend_dev_name, ctypes.c_char_p, device)
    _declare(base.ggml_backend_dev_description, ctypes.c_char_p, device)
    _declare(base.ggml_backend_dev_memory, None, device, size, size)
    _declare(base.ggml_version, ctypes.c_char_p)
    return registry, base


def _declare(function: Any, result: Any, *arguments: Any) -> None:
    function.restype = result
    function.argtypes = arguments
