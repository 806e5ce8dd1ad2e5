"""The devices of ggml's registry, which llama-cpp-python's own API does not show."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backends.base import Accelerator, BackendError
from backends.llama_cpp.ggml import Pointer, Size, Text, function

if TYPE_CHECKING:
    from collections.abc import Iterable

# ggml_backend_dev_type: GPU, and IGPU (one that shares the host's memory). BLAS and AMX (ACCEL) are none.
_CPU_TYPE, _GPU_TYPE, _INTEGRATED_TYPE = 0, 1, 2


@dataclass(frozen=True)
class Gpu:
    """A device, beside the CPU, that this build of llama.cpp can use, and its `ggml_backend_dev_t`."""

    handle: int
    accelerator: Accelerator
    integrated: bool = False  # shares the host's memory
    bus: str | None = None  # where the hardware is: the same GPU may be there through CUDA and through Vulkan


def gpus() -> list[Gpu]:
    """Every GPU of this machine, in the registry's order. Devices over RPC are in `rpc.connect`."""
    count: int = function("ggml_backend_dev_count", Size)()
    handles = [function("ggml_backend_dev_get", Pointer, Size)(index) for index in range(count)]
    return [
        _gpu(handle) for handle in handles if _type(handle) in {_GPU_TYPE, _INTEGRATED_TYPE} and not _is_remote(handle)
    ]


def usual_gpus() -> list[Gpu]:
    """The GPUs that llama.cpp takes where none is named: one entry a bus, integrated ones only if there is no other."""
    everything = gpus()
    chosen = [gpu for gpu in everything if not gpu.integrated] or everything
    return [
        gpu
        for index, gpu in enumerate(chosen)
        if gpu.bus is None or gpu.bus not in {earlier.bus for earlier in chosen[:index]}
    ]


def cpu() -> Gpu:
    """The CPU as ggml sees it, with the system's memory."""
    return _gpu(function("ggml_backend_dev_by_type", Pointer, ctypes.c_int)(_CPU_TYPE))


def named(device: str, known: Iterable[Gpu]) -> Gpu:
    """The one of these devices that has this id.

    Raises:
        BackendError: there is none; the message names those that can be asked for, of which the CPU is always one.
    """
    by_id = {gpu.accelerator.id: gpu for gpu in known}
    if device not in by_id:
        raise BackendError(f"llama.cpp has no device {device!r}: it has {', '.join(['cpu', *by_id])}")
    return by_id[device]


def memory(handle: int) -> tuple[int, int]:
    """Free and total bytes of a device; 0 and 0 where it does not tell."""
    free, total = Size(), Size()
    size = ctypes.POINTER(Size)
    function("ggml_backend_dev_memory", None, Pointer, size, size)(handle, free, total)
    return free.value, total.value


def device_name(handle: int) -> str:
    """The engine's own name: "CUDA0", "RPC0"."""
    name: bytes = function("ggml_backend_dev_name", Text, Pointer)(handle)
    return name.decode()


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props`."""

    _fields_ = (
        ("name", Text),
        ("description", Text),
        ("memory_free", Size),
        ("memory_total", Size),
        ("type", ctypes.c_int),
        ("device_id", Text),
        ("caps", ctypes.c_bool * 16),  # five by now; those that a later version adds must not be written elsewhere
    )


def _gpu(handle: int) -> Gpu:
    properties = _Properties()
    function("ggml_backend_dev_get_props", None, Pointer, Pointer)(handle, ctypes.addressof(properties))
    return Gpu(
        handle,
        Accelerator(
            id=properties.name.decode(),
            name=properties.description.decode(),
            memory_bytes=properties.memory_total or None,
        ),
        integrated=properties.type == _INTEGRATED_TYPE,
        bus=properties.device_id and properties.device_id.decode(),
    )


def _type(handle: int) -> Any:
    return function("ggml_backend_dev_type", ctypes.c_int, Pointer)(handle)


def _is_remote(handle: int) -> bool:
    registry = function("ggml_backend_dev_backend_reg", Pointer, Pointer)(handle)
    return bool(function("ggml_backend_reg_name", Text, Pointer)(registry) == b"RPC")
