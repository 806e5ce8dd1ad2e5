"""What llama.cpp's model parameters point at, in C's layout: devices, shares, and where experts lie.

llama.cpp keeps the pointers, not what they lead to, so the session keeps what these functions return.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from backends.llama_cpp.ggml import Pointer, Text, function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.llama_cpp.gpu_registry import Gpu


class BufferOverride(ctypes.Structure):
    """`llama_model_tensor_buft_override`: tensors whose names match are put into buffers of this type."""

    _fields_ = (("pattern", Text), ("buffer_type", Pointer))


def device_list(devices: Sequence[Gpu]) -> ctypes.Array[Pointer]:
    """The devices and a NULL. An empty list keeps every operation off the GPUs, the prompt's included."""
    return (Pointer * (len(devices) + 1))(*(device.handle for device in devices), None)


def experts_on_host(n_layers: int) -> ctypes.Array[BufferOverride]:
    """As llama.cpp's own `--n-cpu-moe`: the expert tensors of the first layers, and a NULL."""
    host = function("ggml_backend_cpu_buffer_type", Pointer)()
    overrides = (BufferOverride * (n_layers + 1))()
    for layer in range(n_layers):
        pattern = rf"blk\.{layer}\.ffn_(up|down|gate_up|gate)_(ch|)exps"
        overrides[layer] = BufferOverride(pattern.encode(), host)
    return overrides


def shares(tensor_split: Sequence[float], max_devices: int) -> ctypes.Array[ctypes.c_float]:
    """Each device's part, 0 for those that are not named."""
    return (ctypes.c_float * max_devices)(*tensor_split)
