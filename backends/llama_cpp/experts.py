"""Which experts a step reads, seen by llama.cpp's callback after each tensor that it computes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from backends.llama_cpp.ggml import Pointer, Size, Text, function

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

_CHOSEN = b"ffn_moe_topk-"  # llama.cpp's name of a layer's chosen experts; the layer's number follows


class _Tensor(ctypes.Structure):
    """The beginning of `ggml_tensor`: its type, buffer, elements and strides of each dimension."""

    _fields_ = (("type", ctypes.c_int), ("buffer", Pointer), ("ne", ctypes.c_int64 * 4), ("nb", Size * 4))


class Watch:
    """Looks at the chosen experts while it is on.

    Attributes:
        callback: what a context is made with (`cb_eval`); this object must outlive the context.
        on: whether to look; each look waits for the device.
    """

    def __init__(self, llama: ModuleType) -> None:
        self.callback = llama.ggml_backend_sched_eval_callback(self._look)
        self.on = False
        self._seen: dict[bytes, NDArray[np.int32]] = {}

    def take(self) -> NDArray[np.int64]:
        """`[layers]`: how many different experts each of them chose since the last call."""
        seen, self._seen = self._seen, {}
        return np.array([len(chosen) for chosen in seen.values()], np.int64)

    def _look(self, tensor: int, ask: bool, _: int | None) -> bool:
        """Asked before: whether to stop after this tensor. Told after: whether to go on."""
        name: bytes = function("ggml_get_name", Text, Pointer)(tensor)
        if ask:
            return self.on and name.startswith(_CHOSEN)
        # A step of many sequences may be computed in several parts.
        self._seen[name] = np.union1d(self._seen.get(name, []), _numbers(tensor)).astype(np.int32)
        return True


def _numbers(tensor: int) -> NDArray[np.int32]:
    """All elements of a tensor of 32-bit integers, whose rows may lie apart."""
    shape = ctypes.cast(tensor, ctypes.POINTER(_Tensor)).contents
    n_bytes: int = function("ggml_nbytes", Size, Pointer)(tensor)
    content = np.empty(n_bytes, np.uint8)
    get = function("ggml_backend_tensor_get", None, Pointer, Pointer, Size, Size)
    get(tensor, content.ctypes.data, 0, n_bytes)
    rows = np.lib.stride_tricks.as_strided(
        content.view(np.int32), (shape.ne[1], shape.ne[0]), (shape.nb[1], shape.nb[0]), writeable=False
    )
    return np.unique(rows)
