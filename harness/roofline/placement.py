"""What fits where: a model with its KV cache in one memory, or llama.cpp's split between a GPU and the host.

A capacity is what can be used, in bytes: free VRAM, Metal's recommended working set, RAM less the system's share.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.roofline.ceiling import Share
from harness.roofline.checks import require, require_workload
from harness.roofline.parts import WHOLE, Part
from harness.roofline.workspace import LLAMA_CPP

if TYPE_CHECKING:
    from harness.roofline.architecture import Attention, Recurrent
    from harness.roofline.ceiling import Memory
    from harness.roofline.weights import Weights
    from harness.roofline.workspace import Engine, LlamaCpp

_MOST_BYTES = 1e18
_MOST_CONTEXT = 2**24  # tokens that are tried where the model states no limit


@dataclass(frozen=True)
class Needs:
    """Bytes that a model takes while it runs."""

    weight_bytes: int
    kv_bytes: int  # as the engine allocates it, all sequences
    workspace_bytes: int  # what the engine computes in

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weight_bytes + self.kv_bytes + self.workspace_bytes


def needs(
    weights: Weights,
    *,
    context: int,
    batch: int = 1,
    k_element_bytes: float = 2,
    v_element_bytes: float | None = None,
    engine: Engine = LLAMA_CPP,
) -> Needs:
    """Bytes of the whole model in one memory, with `batch` sequences of `context` tokens.

    Raises:
        ValueError: a number is out of range; the message names it.
    """
    require_workload(context, batch, k_element_bytes, v_element_bytes)
    arch = weights.architecture
    return Needs(
        weight_bytes=weights.n_bytes,
        kv_bytes=engine.kv_cache_bytes(arch, context, batch, k_element_bytes, v_element_bytes),
        workspace_bytes=engine.workspace_bytes(arch, context, batch),
    )


def fits(needed: Needs, capacity_bytes: float) -> bool:
    """Whether a memory has room for it.

    Raises:
        ValueError: the capacity is negative or absurd.
    """
    require("capacity_bytes", capacity_bytes, 0, _MOST_BYTES)
    return needed.total_bytes <= capacity_bytes


def max_context(
    weights: Weights,
    capacity_bytes: float,
    *,
    batch: int = 1,
    k_element_bytes: float = 2,
    v_element_bytes: float | None = None,
    engine: Engine = LLAMA_CPP,
) -> int | None:
    """The longest context of each of `batch` sequences that fits, at most what the model is made for.

    Returns:
        Tokens; None where not even one fits.

    Raises:
        ValueError: a number is out of range; the message names it.
    """
    require("capacity_bytes", capacity_bytes, 0, _MOST_BYTES)
    require_workload(1, batch, k_element_bytes, v_element_bytes)
    arch = weights.architecture

    def beside_weights(context: int) -> int:
        kv_bytes = engine.kv_cache_bytes(arch, context, batch, k_element_bytes, v_element_bytes)
        return kv_bytes + engine.workspace_bytes(arch, context, batch)

    limit = arch.max_context or _MOST_CONTEXT
    steps = range(engine.cells, limit + engine.cells, engine.cells)
    room_bytes = capacity_bytes - weights.n_bytes
    if beside_weights(limit) <= room_bytes:  # as on most devices: no search then
        return limit
    n_steps = bisect_right(steps, room_bytes, key=beside_weights)
    return min(n_steps * engine.cells, limit) or None


def gpu_layers(  # noqa: PLR0913 what llama.cpp's own flags decide
    weights: Weights,
    capacity_bytes: float,
    *,
    context: int,
    batch: int = 1,
    k_element_bytes: float = 2,
    v_element_bytes: float | None = None,
    engine: LlamaCpp = LLAMA_CPP,
    n_cpu_moe: int = 0,
    kv_offload: bool = True,
) -> int:
    """How many layers fit a GPU, as llama.cpp counts them (`-ngl`): the output layer is one, and the first to go there.

    The repeating layers follow from the end of the stack, each with its part of the KV cache; the input embedding
    stays on the host, so all layers may fit where `needs` says that the whole model does not
    (`llama_model_base::load_tensors`, `llama_kv_cache`).

    Args:
        weights: of the whole model.
        capacity_bytes: of the GPU.
        context: tokens of each sequence.
        batch: sequences.
        k_element_bytes: bytes of an element of the cached keys.
        v_element_bytes: of the values; None: as the keys.
        engine: what it allocates beside the weights.
        n_cpu_moe: of so many layers, the first, the experts stay on the host.
        kv_offload: a layer's part of the KV cache lies beside it; False: on the host.

    Returns:
        0 to `n_layers + 1`.

    Raises:
        ValueError: a number is out of range; the message names it.
    """
    require("capacity_bytes", capacity_bytes, 0, _MOST_BYTES)
    require_workload(context, batch, k_element_bytes, v_element_bytes)
    arch = weights.architecture
    layer_bytes = [weights.layer_bytes(layer) for layer in range(arch.n_layers)]
    for layer in range(min(n_cpu_moe, arch.n_layers)):
        layer_bytes[layer] -= weights.expert_bytes(layer)
    kv_bytes: dict[Attention | Recurrent, int] = {}  # layers share a few mixers
    for layer in range(arch.n_layers):
        if (mixer := arch.layers[layer].mixer) not in kv_bytes:
            only = range(layer, layer + 1)
            kv_bytes[mixer] = engine.kv_cache_bytes(arch, context, batch, k_element_bytes, v_element_bytes, only)
    used = weights.output_bytes + engine.workspace_bytes(arch, context, batch)
    if used > capacity_bytes:
        return 0
    count = 1
    for layer in reversed(range(arch.n_layers)):
        used += layer_bytes[layer] + (kv_bytes[arch.layers[layer].mixer] if kv_offload else 0)
        if used > capacity_bytes:
            break
        count += 1
    return count


@dataclass(frozen=True)
class Place:
    """A part of the model that llama.cpp puts on one side."""

    on_gpu: bool
    layers: range
    output: bool  # with the output layer
    parts: Part = WHOLE  # of each of the layers


def places(n_layers: int, n_gpu_layers: int, *, n_cpu_moe: int = 0, kv_offload: bool = True) -> list[Place]:
    """Where llama.cpp puts the layers, in the order in which a step passes through them.

    Args:
        n_layers: repeating layers of the model.
        n_gpu_layers: as llama.cpp counts; `n_layers + 1` and more: all.
        n_cpu_moe: of so many layers, the first, the experts stay on the host.
        kv_offload: a layer's part of the KV cache lies beside it; False: on the host.

    Raises:
        ValueError: `n_gpu_layers` or `n_cpu_moe` is negative or absurd.
    """
    require("n_gpu_layers", n_gpu_layers, 0, 10**6)
    require("n_cpu_moe", n_cpu_moe, 0, 10**6)
    first = min(max(n_layers + 1 - n_gpu_layers, 0), n_layers)  # the output layer has the index n_layers
    on_host = Place(on_gpu=False, layers=range(first), output=n_gpu_layers == 0)
    on_gpu = offloaded(range(first, n_layers), output=n_gpu_layers > 0, n_cpu_moe=n_cpu_moe, kv_offload=kv_offload)
    return [on_host, *on_gpu] if on_host.layers or on_host.output else on_gpu


def offloaded(layers: range, *, output: bool, n_cpu_moe: int = 0, kv_offload: bool = True) -> list[Place]:
    """Where the parts of layers lie that an accelerator computes.

    Args:
        layers: of one accelerator.
        output: with the output layer.
        n_cpu_moe: the experts of layers below this one stay on the host.
        kv_offload: the KV cache lies beside its layers; False: on the host.
    """
    own = WHOLE if kv_offload else Part.DENSE | Part.EXPERTS
    first_whole = min(max(n_cpu_moe, layers.start), layers.stop)
    mixed, whole = range(layers.start, first_whole), range(first_whole, layers.stop)
    found = [
        Place(on_gpu=True, layers=mixed, output=False, parts=own & ~Part.EXPERTS),
        Place(on_gpu=False, layers=mixed, output=False, parts=Part.EXPERTS),
        Place(on_gpu=True, layers=whole, output=output, parts=own),
        Place(on_gpu=False, layers=range(0) if kv_offload else layers, output=False, parts=Part.KV),
    ]
    return [place for place in found if place.layers or place.output]


def split(
    weights: Weights, n_gpu_layers: int, gpu: Memory, host: Memory, *, n_cpu_moe: int = 0, kv_offload: bool = True
) -> list[Share]:
    """The shares of llama.cpp's `places`.

    Args:
        weights: of the whole model.
        n_gpu_layers: as llama.cpp counts.
        gpu: holds the output layer and the last layers.
        host: holds the rest.
        n_cpu_moe: as for `places`.
        kv_offload: as for `places`.

    Raises:
        ValueError: `n_gpu_layers` or `n_cpu_moe` is negative or absurd.
    """
    held = places(weights.architecture.n_layers, n_gpu_layers, n_cpu_moe=n_cpu_moe, kv_offload=kv_offload)
    return [Share(gpu if place.on_gpu else host, weights, place.layers, place.output, place.parts) for place in held]
