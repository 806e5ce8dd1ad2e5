"""What torch really did: the model in memory, its cache, the mode of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers

from backends.base import Facts, Memory
from backends.torch.caches import QUANTIZED
from backends.torch.devices import ASYNCHRONOUS, build, name_and_memory

if TYPE_CHECKING:
    from backends.torch.attention import KvCache
    from backends.torch.caches import LibraryCache
    from backends.torch.modes import Mode
    from backends.torch.passes import Passes
    from backends.torch.setup import Setup


def facts(setup: Setup, passes: Passes | None, mode: Mode | None) -> Facts:
    """See `backends.base`; counted from the model's own tensors, which hold a tied one once.

    Args:
        setup: Of the session.
        passes: Of the last allocation; None: there was none.
        mode: Of its decode; None: it has not decoded yet.
    """
    device, weights = setup.device, setup.weights
    cache = passes.cache if passes else None
    device_name, memory_bytes = name_and_memory(device)
    name = mode.name if mode else "eager"  # prefill is eager in every mode
    return Facts(
        backend_version=torch.__version__,
        engine_build=build(),
        engine_mode=name,
        device=str(device),
        device_name=device_name,
        device_memory_bytes=memory_bytes,
        n_threads=torch.get_num_threads(),
        gpu_layers_effective=setup.config.num_hidden_layers + 1 if device.type != "cpu" else 0,
        flash_attn="sdpa" if name == "eager" else "split matmul",
        n_params=weights.n_params,
        weight_format=weights.name,
        weight_bytes=weights.n_bytes,
        kv_k_format=setup.kv_format,
        kv_v_format=setup.kv_format,
        kv_allocated_tokens=cache.allocated_tokens if cache is not None else 0,
        engine_settings={
            "transformers": transformers.__version__,
            "torch_mode": setup.mode,
            "kv_cache": _cache_in_use(setup, cache, name),
            "steps_ahead": 1 if device.type in ASYNCHRONOUS else 0,
            "argmax": "device",
            "decode_linear": _linear_in_use(passes),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "experts": getattr(setup.config, "_experts_implementation", None),
            **weights.settings,
            **_products(setup, name),
            **(mode.settings if mode else {}),
        },
    )


def memory(setup: Setup, passes: Passes | None) -> Memory:
    """The accelerator's allocator counts its own peak; MPS has no such counter."""
    cache, device = passes.cache if passes else None, setup.device
    kv_cache_bytes = cache.n_bytes if cache is not None else 0
    if device.type in ASYNCHRONOUS:
        return Memory(torch.accelerator.max_memory_allocated(device), kv_cache_bytes)
    reason = "the model is on the CPU" if device.type == "cpu" else "torch has no peak counter on MPS"
    return Memory(None, kv_cache_bytes, {"peak_device_bytes": reason})


def _cache_in_use(setup: Setup, cache: KvCache | LibraryCache | None, mode: str) -> str:
    if cache is None:
        return "none"
    if setup.cache_kind == QUANTIZED:
        latest = f", the latest {setup.unquantised} tokens not" if setup.unquantised else ""
        return f"{QUANTIZED} by {setup.cache_format}{latest}"
    return setup.cache_kind or ("views" if mode == "eager" else "whole buffer, masked")


def _linear_in_use(passes: Passes | None) -> str | None:
    """Whose matrix products a decode step takes; None where there is no choice: of several tokens, on a GPU."""
    return {True: "onednn", False: "native", None: None}[passes.onednn if passes else None]


def _products(setup: Setup, mode: str) -> dict[str, str]:
    """What becomes of weights that torchao multiplies with only after they are expanded."""
    if not setup.weights.eager_expands:
        return {}
    expanded = "expanded to bf16 in every pass"
    return {"prefill_products": expanded, "decode_products": expanded if mode == "eager" else "fused"}
