"""The library of llama-cpp-python, started once a process."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from backends.llama_cpp import ggml
from backends.llama_cpp.engine_log import EngineLog

if TYPE_CHECKING:
    from types import ModuleType


@functools.cache
def start() -> tuple[ModuleType, EngineLog]:
    """The library, and its log, which is led there instead of to the terminal."""
    import llama_cpp

    log = EngineLog()
    log.attach(llama_cpp)
    log.lead_last_words()
    llama_cpp.llama_backend_init()
    return llama_cpp, log


@functools.cache
def build() -> str:
    """What the library says of itself: `llama.cpp 0.5.0, ggml 0.25.3, CPU: AVX512 OPENMP`."""
    llama, _ = start()
    info = " ".join(llama.llama_print_system_info().decode().split())
    on = info.replace(" = 1", "").replace(" : ", ": ").replace(" |", "")
    return f"llama.cpp {llama.llama_version().decode()}, ggml {ggml.version()}, {on.strip()}"
