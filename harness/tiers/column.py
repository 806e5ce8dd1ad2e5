"""The column `tiers` of a row: what each memory held, what a step read there, and how fast it can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.ceilings.memory_use import measured_rate, spec_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.ceilings.memories import DeviceMemory
    from harness.ceilings.memory_use import MemoryUse

Values = dict[str, Any]


def tiers_column(
    facts: Mapping[str, Any],
    n_layers: int,
    kv_cache_bytes: int | None,
    memories: Mapping[str, DeviceMemory],
    use: MemoryUse | None,
) -> list[Values]:
    """An entry for each memory, in the order of a step; None for what is not known or has no meaning.

    Args:
        facts: `backends.base.Facts` as the worker tells them.
        n_layers: repeating layers of the model.
        kv_cache_bytes: of an engine that holds all in one memory.
        memories: from `memories.memories`.
        use: what the case reads; None where that cannot be told.
    """
    held = _held(facts, n_layers, kv_cache_bytes)
    ids = [each["memory"] for each in held]
    if use and not facts.get("tiers"):  # an engine may call its device otherwise than the accelerator
        ids = [use.parts[0].memory]
    read = [use.step_bytes(one) if use and use.decodes else None for one in ids]
    return [_tier(*each) for each in zip(held, map(memories.get, ids), read, strict=True)]


def _held(facts: Mapping[str, Any], n_layers: int, kv_cache_bytes: int | None) -> list[Values]:
    """What each memory holds: its id, name, layers and bytes."""
    whole = {
        "memory": facts["device"],
        "name": facts["device_name"],
        "layers": range(n_layers + 1),
        "weight_bytes": facts["weight_bytes"],
        "kv_bytes": kv_cache_bytes,
    }
    return [
        {**tier, "layers": sum(layer < n_layers for layer in tier["layers"]), "output": n_layers in tier["layers"]}
        for tier in facts.get("tiers") or [whole]
    ]


def _tier(held: Values, memory: DeviceMemory | None, n_bytes: float | None) -> Values:
    measured = measured_rate(memory, n_bytes) if memory and n_bytes else None
    spec = spec_rate(memory, 0) if memory else None
    order = ("memory", "name", "layers", "output", "weight_bytes", "kv_bytes")
    return {name: held[name] for name in order} | {
        "read_bytes": None if n_bytes is None else round(n_bytes),
        "bandwidth_measured_gbs": measured and measured / 1e9,
        "bandwidth_spec_gbs": spec and spec / 1e9,
    }
