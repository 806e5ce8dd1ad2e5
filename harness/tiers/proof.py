"""Whether an engine put a model where it was asked to, by the sizes of its buffers and not by its word.

llama.cpp logs "offloaded 13/13 layers to GPU" of layers whose bytes all stay in the host's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.roofline.architecture import Attention
from results.amounts import counted, size

if TYPE_CHECKING:
    from backends.base import Facts, Tier
    from harness.roofline.weights import Weights
    from harness.work import Work

_HOST = "cpu"
# Buffers pad tensors, and an engine keeps small ones where it likes.
_ENOUGH = 0.9
_TOO_SMALL_BYTES = 20 * 1024  # llama.cpp's log resolves 10 KiB


@dataclass(frozen=True)
class Demand:
    """Where a work's parts were asked to lie.

    Attributes:
        gpu_layers: layers off the host, as llama.cpp counts: the output layer is one.
        all_layers: whether those are all that there are.
        kv_layers: the layers that keep a KV cache of their own.
        kv_offload: whether it lies beside its layer; else in the host's memory.
        n_cpu_moe: of so many layers, the first, the experts lie in the host's memory.
        expert_bytes: of each layer.
    """

    gpu_layers: int
    all_layers: bool
    kv_layers: tuple[int, ...]
    kv_offload: bool
    n_cpu_moe: int
    expert_bytes: tuple[int, ...]


def demand_of(work: Work, weights: Weights) -> Demand | None:
    """What is to be proved of a work; None where its engine has no choice."""
    if not work.spreads:
        return None
    settings, n_layers = work.settings, weights.architecture.n_layers
    asked = n_layers + 1 if settings.n_gpu_layers == -1 else min(settings.n_gpu_layers, n_layers + 1)
    if work.accelerator is None:
        asked = 0
    layers = enumerate(layer.mixer for layer in weights.architecture.layers)
    return Demand(
        gpu_layers=asked,
        all_layers=asked > n_layers,
        kv_layers=tuple(n for n, mixer in layers if not (isinstance(mixer, Attention) and mixer.shares_cache)),
        kv_offload=settings.kv_offload,
        n_cpu_moe=settings.n_cpu_moe,
        expert_bytes=tuple(weights.expert_bytes(layer) for layer in range(n_layers)),
    )


def unkept(demand: Demand, facts: Facts) -> str | None:
    """What of the demand the engine did not do, in one line; None: it did all.

    Args:
        demand: what was asked.
        facts: of a loaded model; of its KV cache only after `allocate`.
    """
    return _layers(demand, facts) or _experts(demand, facts.tiers) or _kv_cache(demand, facts.tiers)


def _layers(demand: Demand, facts: Facts) -> str | None:
    asked, got = demand.gpu_layers, facts.gpu_layers_effective
    if got == asked or (demand.all_layers and got > asked):
        return None
    where = "; ".join(f"{size(tier.weight_bytes)} of weights on {tier.memory}" for tier in facts.tiers)
    return (
        f"{counted(asked, 'layer was', 'layers were')} to be off the host, the output layer counted as one, and by the "
        f"sizes of its buffers {got} are ({where}); its device may lack memory (try a lower -ngl), or kernels for "
        f"{facts.weight_format} weights (try -w)"
    )


def _experts(demand: Demand, tiers: tuple[Tier, ...]) -> str | None:
    moved = (layer for tier in tiers if tier.memory != _HOST for layer in tier.layers if layer < demand.n_cpu_moe)
    asked = sum(demand.expert_bytes[layer] for layer in moved if layer < len(demand.expert_bytes))
    got = sum(tier.weight_bytes for tier in tiers if tier.memory == _HOST)
    if got >= _ENOUGH * asked:
        return None
    return (
        f"-ncmoe {demand.n_cpu_moe} was to keep {size(asked)} of experts in the host's memory, and all that is "
        f"there is {size(got)}: llama.cpp may have other names for this model's experts"
    )


def _kv_cache(demand: Demand, tiers: tuple[Tier, ...]) -> str | None:
    total = sum(tier.kv_bytes for tier in tiers)
    for tier in tiers:
        layers = [layer for layer in tier.layers if layer in demand.kv_layers]
        if tier.memory == _HOST:
            continue
        if not demand.kv_offload and tier.kv_bytes:
            where = f"{tier.kv_bytes:,} B are on {tier.memory}"
            return f"-nkvo 1 was to keep the KV cache in the host's memory, and {where}"
        expected = total * len(layers) / len(demand.kv_layers) if demand.kv_offload and layers else 0
        if expected > _TOO_SMALL_BYTES and not tier.kv_bytes:
            theirs = f"the KV cache of {counted(len(layers), 'layer')}"
            return f"{theirs} was to be on {tier.memory} with them, and nothing of it is"
    return None
