"""Where a model really is, told by the sizes of llama.cpp's buffers and of the file's tensors.

Its log says to which device a layer was assigned, and how many were "offloaded"; both can be said of layers whose
bytes all lie in the host's memory. So a device has only the layers that the bytes in its buffers can hold.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from backends.base import Accelerator, Tier
from backends.llama_cpp import engine_log

if TYPE_CHECKING:
    from collections.abc import Sequence

# llama.cpp keeps a few small tensors of a layer on the host where the device lacks a kernel for them.
_ENOUGH = 0.9
_LOG_RESOLUTION = 10 * 1024

Buffers = dict[str, dict[str, int]]
"""Bytes by buffer name and use, as `engine_log.buffer_bytes` reads them."""


def tiers(
    assigned: Sequence[str], sizes: Sequence[int], buffers: Buffers, accelerators: Sequence[Accelerator]
) -> tuple[Tier, ...]:
    """What each memory holds: the host first, then the devices in the order in which a step comes to them.

    Args:
        assigned: the device that the log names for each layer, the output layer last.
        sizes: bytes of each of these layers.
        buffers: of the model and the KV cache.
        accelerators: those that the model could use.
    """
    found = []
    for group in _told_apart(accelerators, buffers):
        ids = [accelerator.id for accelerator in group]
        held = _held_bytes(ids, buffers)
        if held.get("model") or held.get("kv"):
            layers = [layer for layer, device in enumerate(assigned) if device in ids]
            layers = _held_layers(layers, sizes, held.get("model", 0))
            found.append(_tier(",".join(ids), ", ".join(dict.fromkeys(one.name for one in group)), layers, held))
    found.sort(key=lambda tier: tier.layers)
    elsewhere = {layer for tier in found for layer in tier.layers}
    on_host = [layer for layer in range(len(assigned)) if layer not in elsewhere]
    host = {use: sum(uses.get(use, 0) for uses in buffers.values()) for use in ("model", "kv")}
    for tier in found:
        host["model"] -= tier.weight_bytes
        host["kv"] -= tier.kv_bytes
    return (_tier("cpu", None, on_host, host), *found)


def layers_off_host(places: Sequence[Tier]) -> int:
    """How many layers the memories beside the host's hold, the output layer counted as one."""
    return sum(len(tier.layers) for tier in places if tier.memory != "cpu")


def device_bytes(buffers: Buffers, accelerators: Sequence[Accelerator]) -> int:
    """Bytes of every use on these devices together."""
    return sum(
        sum(_held_bytes([accelerator.id for accelerator in group], buffers).values())
        for group in _told_apart(accelerators, buffers)
    )


def _told_apart(accelerators: Sequence[Accelerator], buffers: Buffers) -> list[list[Accelerator]]:
    """Groups of devices whose bytes the log tells apart: those that share each matrix by rows are one."""
    groups: dict[str, list[Accelerator]] = {}
    for accelerator in accelerators:
        split = _split_buffer(accelerator.id)
        groups.setdefault(split if split in buffers else accelerator.id, []).append(accelerator)
    return list(groups.values())


def _held_bytes(ids: Sequence[str], buffers: Buffers) -> dict[str, int]:
    total = Counter(buffers.get(_split_buffer(ids[0]), {}))
    for device in ids:
        total.update(engine_log.on_device(buffers, device))
    return total


def _split_buffer(device: str) -> str:
    return f"{device.rstrip('0123456789')}_Split"


def _tier(memory: str, name: str | None, layers: Sequence[int], held: dict[str, int]) -> Tier:
    return Tier(memory, name, tuple(layers), weight_bytes=held.get("model", 0), kv_bytes=held.get("kv", 0))


def _held_layers(layers: list[int], sizes: Sequence[int], model_bytes: int) -> list[int]:
    """The last of the layers, as many as these bytes are enough for."""
    if not model_bytes:
        return []
    while _ENOUGH * sum(sizes[layer] for layer in layers) > model_bytes + _LOG_RESOLUTION:
        layers = layers[1:]
    return layers
