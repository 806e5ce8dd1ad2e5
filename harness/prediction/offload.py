"""How to place a model that is too large for a GPU: the fastest `-ngl` of those that fit, and other ways."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.prediction.held import Held, decode_tok_s
from harness.roofline.placement import gpu_layers, split

if TYPE_CHECKING:
    from harness.prediction.hardware import Range
    from harness.prediction.question import Question
    from harness.prediction.target import Target

_ONE_GB = 10**9


@dataclass(frozen=True)
class Choice:
    """One way to place a model, as llama.cpp's flags say it."""

    n_gpu_layers: int
    n_cpu_moe: int
    held: tuple[Held, ...]  # in the order in which a step passes through
    decode_tok_s: Range
    host_bytes: float  # that an average decode step reads from the host's memory
    host_s: float  # those at that memory's full bandwidth: what no GPU makes shorter


@dataclass(frozen=True)
class Offload:
    """The ways worth knowing; rates are compared by the middle of their ranges."""

    best: Choice  # the fastest `-ngl` of those that fit
    one_gb_more: Choice  # the same with a GB more on the GPU
    experts_on_host: Choice | None  # all layers on the GPU, the fewest experts on the host; None: no faster


def offload(question: Question, target: Target, host: Target) -> Offload:
    """The best splits of a model between a GPU and the host.

    Args:
        question: what runs.
        target: the GPU.
        host: the system memory that takes the rest; its size is not checked.

    Raises:
        ValueError: a bandwidth or the GPU's capacity is not known.
    """
    if target.capacity_bytes is None:
        raise ValueError(f"how much {target.name} can hold is not known")
    room_bytes = target.capacity_bytes
    best, one_gb_more = (
        _fastest(question, target, host, layers_that_fit(question, room)) for room in (room_bytes, room_bytes + _ONE_GB)
    )
    experts = _experts_on_host(question, target, host, room_bytes)
    is_faster = experts is not None and experts.decode_tok_s.mid > best.decode_tok_s.mid
    return Offload(best, one_gb_more, experts_on_host=experts if is_faster else None)


@lru_cache
def layers_that_fit(question: Question, capacity_bytes: int, n_cpu_moe: int = 0) -> int:
    """The largest `-ngl`, with the experts of the first `n_cpu_moe` layers on the host."""
    context = question.case.context_tokens
    return gpu_layers(question.weights, capacity_bytes, context=context, **question.kv, n_cpu_moe=n_cpu_moe)


def _experts_on_host(question: Question, target: Target, host: Target, room_bytes: int) -> Choice | None:
    """With the smallest `--n-cpu-moe` that lets every layer onto the GPU; None where there is none."""
    arch = question.weights.architecture
    if not arch.is_mixture:
        return None
    counts = range(1, arch.n_layers + 1)
    found = bisect_left(counts, arch.n_layers + 1, key=lambda count: layers_that_fit(question, room_bytes, count))
    return _choice(question, target, host, arch.n_layers + 1, counts[found]) if found < len(counts) else None


def _choice(question: Question, target: Target, host: Target, n_gpu_layers: int, n_cpu_moe: int = 0) -> Choice:
    if target.hardware is None or host.hardware is None:
        raise ValueError("a memory whose bandwidth is not known has no rate")
    shares = split(question.weights, n_gpu_layers, target.memory, host.memory, n_cpu_moe=n_cpu_moe)
    hardware = {target.memory: target.hardware, host.memory: host.hardware}
    held = tuple(Held(share, hardware[share.memory], on_host=share.memory == host.memory) for share in shares)
    host_bytes = sum(each.step_bytes(question) for each in held if each.on_host)
    return Choice(
        n_gpu_layers=n_gpu_layers,
        n_cpu_moe=n_cpu_moe,
        held=held,
        decode_tok_s=decode_tok_s(question, held),
        host_bytes=host_bytes,
        host_s=host_bytes / host.hardware.bandwidth_bytes_s,
    )


def _fastest(question: Question, target: Target, host: Target, most: int) -> Choice:
    """The better end: a layer that moves changes a step's time by its bytes times the same number as every other."""
    return max((_choice(question, target, host, count) for count in (0, most)), key=lambda each: each.decode_tok_s.mid)
