"""What llama.cpp really did, from the loaded file and the engine's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.base import Facts, Memory
from backends.llama_cpp import library, tiers
from backends.llama_cpp.parameters import kv_format

if TYPE_CHECKING:
    from backends.base import LoadRequest
    from backends.llama_cpp.context import Context
    from backends.llama_cpp.model import Model
    from backends.llama_cpp.tiers import Buffers


def facts(request: LoadRequest, model: Model, context: Context | None) -> Facts:
    """See `backends.base`.

    Args:
        request: what was asked.
        model: as it was loaded.
        context: as it is allocated; None: not yet.
    """
    buffers = _buffers(model, context)
    places = model.tiers(buffers)
    used = [tier for tier in places if tier.layers and tier.memory != "cpu"]
    flash_attention = context.flash_attention if context else None
    unavailable = {}
    if flash_attention is None:
        unavailable["flash_attn"] = "llama.cpp decides when it allocates the KV cache"
    ids = ",".join(tier.memory for tier in used)
    totals = [device.memory_bytes for device in model.devices if device.id in ids.split(",")]
    if None in totals:
        unavailable["device_memory_bytes"] = "llama.cpp does not tell this device's memory"
    return Facts(
        backend_version=model.llama.__version__,
        engine_build=library.build(),
        engine_mode="llama_decode",
        device=ids or "cpu",
        device_name=", ".join(tier.name for tier in used if tier.name) or None,
        device_memory_bytes=sum(total for total in totals if total) if totals and None not in totals else None,
        n_threads=request.n_threads,
        gpu_layers_effective=tiers.layers_off_host(places),
        flash_attn=flash_attention,
        n_params=model.n_params,
        weight_format=model.weight_format(),
        weight_bytes=model.n_bytes,
        kv_k_format=kv_format(request.kv_k_format),
        kv_v_format=kv_format(request.kv_v_format),
        kv_allocated_tokens=context.allocated_tokens if context else 0,
        engine_settings={
            **model.settings,
            "argmax": "host",
            "buffers": buffers,
            **(context.settings if context else {}),
        },
        tiers=places,
        unavailable=unavailable,
    )


def memory(model: Model, context: Context | None) -> Memory:
    """Bytes of the buffers that llama.cpp logged, right to 5 KiB each (see `engine_log`).

    It allocates them before the first token, so they are also the peak. What the driver and CUDA's scratch pool
    take is not logged, and not counted.
    """
    unavailable = {}
    buffers = _buffers(model, context)
    device_bytes = tiers.device_bytes(buffers, model.devices)
    kv_bytes = sum(uses.get("kv", 0) for uses in buffers.values())
    if not device_bytes:
        unavailable["peak_device_bytes"] = "llama.cpp holds nothing on a GPU"
    if not kv_bytes:
        unavailable["kv_cache_bytes"] = "less than the 10 KiB that llama.cpp's log resolves"
    return Memory(device_bytes or None, kv_bytes or None, unavailable)


def _buffers(model: Model, context: Context | None) -> Buffers:
    """Bytes by buffer name and use, those of the model and those of the context together."""
    more = context.buffers if context else {}
    return {name: model.buffers.get(name, {}) | more.get(name, {}) for name in model.buffers | more}
