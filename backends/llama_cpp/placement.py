"""What a request asks of llama.cpp, checked before the file is opened."""

from __future__ import annotations

import math
import platform
from typing import TYPE_CHECKING

from backends.base import BackendError
from backends.install import rebuild_line
from backends.llama_cpp import gpu_registry, rpc

if TYPE_CHECKING:
    from backends.base import LoadRequest
    from backends.llama_cpp.gpu_registry import Gpu

_KV_FORMATS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")

FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
"""`llama_flash_attn_type` by its name on the command line."""

SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}
"""`llama_split_mode` by its name on the command line."""


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
    if request.split_mode not in SPLIT_MODES:
        raise BackendError(f"llama.cpp splits by {', '.join(SPLIT_MODES)}, not {request.split_mode!r}")
    if request.split_mode == "row" and request.rpc:
        raise BackendError("--rpc lends whole layers, and --split-mode row cuts them: use --split-mode layer")
    if request.n_cpu_moe < 0:
        raise BackendError(f"--n-cpu-moe is a number of layers, not {request.n_cpu_moe}")
    quantised = request.kv_v_format not in {"auto", "f32", "f16", "bf16"}
    if quantised and request.flash_attn == "off":
        raise BackendError(f"a {request.kv_v_format} V cache needs flash attention in llama.cpp: use -fa on")


def placement(request: LoadRequest) -> tuple[list[Gpu], int]:
    """Which devices llama.cpp may use beside the CPU, in its order, and how many layers go there (-1: all)."""
    devices = _devices(request)
    _check_shares(request, len(devices))
    return devices, request.n_gpu_layers if devices else 0


def _devices(request: LoadRequest) -> list[Gpu]:
    asked = request.n_gpu_layers
    if request.device == "cpu":
        if request.rpc:
            raise BackendError("--rpc lends devices, and the one asked for is the CPU: use --device auto")
        if asked > 0:
            raise BackendError(f"-ngl {asked} puts layers on a GPU, and the device asked for is the CPU")
        return []
    # As llama.cpp orders them; an integrated GPU only where there is nothing else.
    remote = rpc.connect(request.rpc)
    local = [gpu for gpu in gpu_registry.usual_gpus() if not (remote and gpu.integrated)]
    if request.device == "auto" and not remote + local and asked <= 0:
        return []
    if not remote + local:
        raise BackendError(
            "this llama-cpp-python sees no GPU: built without GPU offload, or no driver. "
            f"Reinstall it with {rebuild_line(platform.system())}"
        )
    if request.device in {"auto", "gpu"}:
        return remote + local
    return [gpu_registry.named(request.device, remote + gpu_registry.gpus())]


def _check_shares(request: LoadRequest, n_devices: int) -> None:
    shares = request.tensor_split
    if not shares:
        return
    text = ",".join(f"{share:g}" for share in shares)
    if not all(math.isfinite(share) and share >= 0 for share in shares) or not any(shares):
        raise BackendError(f"--tensor-split {text}: each share is 0 or more, and one at least is more")
    if len(shares) > n_devices:
        raise BackendError(f"--tensor-split {text} has {len(shares)} shares, and there are {n_devices} devices")
    if request.split_mode == "none":
        raise BackendError(f"--tensor-split {text} divides a model, and --split-mode none keeps it on one device")
