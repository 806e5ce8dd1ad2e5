"""Where an engine put the parts of a model, as its buffers tell."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from harness.ceilings.memories import HOST
from harness.roofline.parts import WHOLE, Part
from harness.roofline.placement import offloaded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.work import Work


@dataclass(frozen=True)
class Placed:
    """Some layers, or parts of them, in one memory."""

    memory: str  # HOST, or the accelerator's id
    layers: range
    output: bool  # with the output layer
    parts: Part = WHOLE  # of each of the layers


def placed(work: Work, facts: Mapping[str, Any], n_layers: int) -> list[Placed]:
    """Every part of a model, in the order of a step.

    Args:
        work: what runs; of the experts and the KV cache, where they lie is what was asked, which the worker has proved.
        facts: `backends.base.Facts` as the worker tells them.
        n_layers: repeating layers of the model.
    """
    if not facts.get("tiers"):
        memory = HOST if facts["device"] == "cpu" or work.accelerator is None else work.accelerator.id
        return [Placed(memory, range(n_layers), output=True)]
    return [each for tier in facts["tiers"] for each in _of_tier(work, tier, n_layers)]


def _of_tier(work: Work, tier: Mapping[str, Any], n_layers: int) -> Iterator[Placed]:
    runs = _runs([layer for layer in tier["layers"] if layer < n_layers])
    has_output = n_layers in tier["layers"]
    if has_output and not (runs and runs[-1].stop == n_layers):
        runs.append(range(n_layers, n_layers))
    for layers in runs:
        output = has_output and layers.stop == n_layers
        if tier["memory"] == HOST:
            yield Placed(HOST, layers, output)
            continue
        settings = work.settings
        for place in offloaded(layers, output=output, n_cpu_moe=settings.n_cpu_moe, kv_offload=settings.kv_offload):
            yield Placed(tier["memory"] if place.on_gpu else HOST, place.layers, place.output, place.parts)


def _runs(layers: Sequence[int]) -> list[range]:
    """Layers that follow each other, together."""
    groups = groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0])
    runs = [[layer for _, layer in group] for _, group in groups]
    return [range(run[0], run[-1] + 1) for run in runs]
