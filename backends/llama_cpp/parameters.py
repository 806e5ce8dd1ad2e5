"""A request in llama.cpp's own parameters: of a model, and of a context."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from backends.llama_cpp import ggml, overrides, placement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from backends.base import LoadRequest
    from backends.llama_cpp.gpu_registry import Gpu


class ModelParameters:
    """`llama_model_params` as `struct`, and what its pointers lead to: this object must outlive the model.

    Args:
        llama: the library.
        request: what is asked.
        devices: those that may be used beside the CPU.
        n_gpu_layers: how many layers go there; -1: all.
    """

    def __init__(self, llama: ModuleType, request: LoadRequest, devices: Sequence[Gpu], n_gpu_layers: int) -> None:
        self.struct = params = llama.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.use_extra_bufts = request.engine_options.get("use_extra_bufts", True)
        params.split_mode = placement.SPLIT_MODES[request.split_mode]
        # Always named: left to itself, llama.cpp takes whatever this process has registered.
        self._devices = overrides.device_list(devices)
        params.devices = ctypes.addressof(self._devices)
        if request.tensor_split:
            self._shares = overrides.shares(request.tensor_split, llama.llama_max_devices())
            params.tensor_split = self._shares
        if request.n_cpu_moe:
            self._experts = overrides.experts_on_host(request.n_cpu_moe)
            params.tensor_buft_overrides = ctypes.addressof(self._experts)


def of_context(llama: ModuleType, request: LoadRequest, context_tokens: int, batch: int) -> Any:
    """`llama_context_params` for `batch` sequences of `context_tokens` each."""
    params = llama.llama_context_default_params()
    params.n_ctx = context_tokens * batch
    params.n_seq_max = batch
    params.n_batch = request.n_batch
    params.n_ubatch = request.n_ubatch
    params.n_threads = params.n_threads_batch = request.n_threads
    params.offload_kqv = request.kv_offload
    params.flash_attn_type = placement.FLASH_ATTENTION[request.flash_attn]
    params.type_k = ggml.element_type(kv_format(request.kv_k_format))
    params.type_v = ggml.element_type(kv_format(request.kv_v_format))
    # As in llama-bench: a sliding window's cache holds the window, not the whole context.
    params.swa_full = False
    return params


def kv_format(asked: str) -> str:
    """The element format of keys or values."""
    return "f16" if asked == "auto" else asked
