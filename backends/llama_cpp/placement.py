"""What a request asks of llama.cpp, checked before the file is opened."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from backends.base import BackendError
from backends.install import rebuild_line
from backends.llama_cpp import gpu_registry

if TYPE_CHECKING:
    from backends.base import LoadRequest
    from backends.llama_cpp.gpu_registry import Gpu

_KV_FORMATS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")

FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
"""`llama_flash_attn_type` by its name on the command line."""


def check(request: LoadRequest) -> None:
    """Refuse what can be known before the file is opened."""
    if not request.artifact.is_file():
        raise BackendError(f"{request.artifact.name}: llama.cpp reads a .gguf file, and there is none")
    if unknown := set(request.engine_options) - {"use_extra_bufts"}:
        raise BackendError(f"llama.cpp knows no engine option {', '.join(sorted(unknown))}: use_extra_bufts it does")
    if request.flash_attn not in FLASH_ATTENTION:
        raise BackendError(f"flash attention is auto, on or off, not {request.flash_attn!r}")
    for asked in (request.kv_k_format, request.kv_v_format):
        if asked not in {"auto", *_KV_FORMATS}:
            raise BackendError(f"llama.cpp has no KV cache format {asked!r}: use one of {', '.join(_KV_FORMATS)}")
    quantised = request.kv_v_format not in {"auto", "f32", "f16", "bf16"}
    if quantised and request.flash_attn == "off":
        raise BackendError(f"a {request.kv_v_format} V cache needs flash attention in llama.cpp: use -fa on")


def placement(request: LoadRequest) -> tuple[list[Gpu] | None, int]:
    """Which GPUs llama.cpp may use (None: its own choice), and how many layers go there (-1: all)."""
    gpus = gpu_registry.gpus()
    asked = request.n_gpu_layers
    if request.device == "cpu":
        if asked > 0:
            raise BackendError(f"-ngl {asked} puts layers on a GPU, and the device asked for is the CPU")
        return [], 0
    if not gpus:
        if request.device != "auto" or asked > 0:
            raise BackendError(
                "this llama-cpp-python sees no GPU: built without GPU offload, or no driver. "
                f"Reinstall it with {rebuild_line(platform.system())}"
            )
        return [], 0
    if request.device in {"auto", "gpu"}:
        return None, asked
    chosen = [gpu for gpu in gpus if gpu.accelerator.id == request.device]
    if not chosen:
        known = ", ".join(gpu.accelerator.id for gpu in gpus)
        raise BackendError(f"llama.cpp has no device {request.device!r}: it has {known}")
    return chosen, asked
