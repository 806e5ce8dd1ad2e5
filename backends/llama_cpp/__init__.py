"""llama.cpp through llama-cpp-python's low-level API: our own batch, `llama_decode`, an argmax on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.base import EngineInfo
from backends.llama_cpp import gpu_registry, library, placement, quantise
from backends.llama_cpp.rpc import connect
from backends.llama_cpp.session import LlamaCppSession

if TYPE_CHECKING:
    from backends.base import LoadRequest


def describe(rpc: tuple[str, ...] = ()) -> EngineInfo:
    """The installed llama-cpp-python, the instruction sets it was built for, and the devices it can use.

    Args:
        rpc: "HOST:PORT" of servers whose devices come first.

    Raises:
        BackendError: an endpoint cannot be used.
    """
    llama, _ = library.start()
    devices = [*connect(rpc), *gpu_registry.gpus()]
    accelerators = tuple(device.accelerator for device in devices)
    return EngineInfo(llama.__version__, library.build(), accelerators, quantised_formats=quantise.formats())


def load(request: LoadRequest) -> LlamaCppSession:
    """Load a GGUF file.

    `engine_options`: `use_extra_bufts` (bool), whether the CPU may repack the weights for its own kernels.

    Raises:
        OutOfMemoryError: the weights do not fit.
        BackendError: the file cannot be loaded, or the request cannot be honoured by this build.
    """
    placement.check(request)
    return LlamaCppSession(request)
