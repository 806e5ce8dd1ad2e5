"""Functions of ggml's own libraries, which llama-cpp-python's API does not show.

They must be those of the very libraries that llama.cpp computes with. The package holds each library more than once
(`libggml.so`, `libggml.so.0`, …) as files of their own, and a second copy has a registry of its own: a device that is
registered there is none to llama.cpp.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

Int, Int64 = ctypes.c_int, ctypes.c_int64
Pointer = ctypes.c_void_p
Size = ctypes.c_size_t
Text = ctypes.c_char_p


@functools.cache
def function(name: str, result: Any, *arguments: Any) -> Any:
    """One of ggml's C functions, with its types.

    Args:
        name: of the function, in `ggml`, `ggml-base` or `llama`.
        result: the ctypes type that it returns; None for void.
        arguments: the ctypes types that it takes.
    """
    # By index, not by attribute: llama_cpp may have declared the same function with other types.
    symbol = next(library[name] for library in _libraries() if hasattr(library, name))
    symbol.restype = result
    symbol.argtypes = arguments
    return symbol


def element_type(name: str) -> int:
    """The number of one of ggml's element formats by its name in lower or upper case, as "q4_k"."""
    from gguf import GGMLQuantizationType

    return int(GGMLQuantizationType[name.upper()])


def version() -> str:
    """Version of the ggml library that llama.cpp computes with."""
    text: bytes = function("ggml_version", Text)()
    return text.decode()


@functools.cache
def _libraries() -> list[ctypes.CDLL]:
    from llama_cpp import llama_cpp

    libraries = [llama_cpp._lib]  # noqa: SLF001
    # A symbol of a library that this one needs is found through it, on Windows only in its own file.
    if not hasattr(libraries[0], "ggml_version"):
        from llama_cpp._ctypes_extensions import load_shared_library

        libraries += [load_shared_library(name, llama_cpp._base_path) for name in ("ggml", "ggml-base")]  # noqa: SLF001
    return libraries
