"""What a model would do on a device: does it fit, how fast could and will it decode, how long does a request take.

Decode and prefill rates come as ranges from `efficiency.py` and `prefill.py`, fits and ceilings from the arithmetic of
`harness.roofline`. One sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from harness.prediction.efficiency import decode_rate
from harness.prediction.hardware import Range
from harness.prediction.held import Held, decode_tok_s
from harness.prediction.offload import layers_that_fit, offload
from harness.prediction.prefill import prefill_flops_s
from harness.roofline.ceiling import decode_ceiling, whole
from harness.roofline.placement import max_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.prediction.offload import Offload
    from harness.prediction.question import Question
    from harness.prediction.target import Target
    from harness.roofline.ceiling import Ceiling

Bound = Literal["memory", "host memory", "compute"]

_PREFILL_PIECE = 512  # tokens llama.cpp computes at once: a layer left on the host crosses the link once for each piece


@dataclass(frozen=True)
class Prediction:
    """The answer for one device; None where there is none, and `notes` says why."""

    target: Target
    fits: bool | None  # wholly in the device's memory; None: its capacity is not known
    needed_bytes: int  # weights, KV cache as llama.cpp allocates it, and workspace
    kv_bytes_per_token: int
    kv_cache_bytes: int  # to the byte
    max_context: int | None  # None: not even one token fits, or the capacity is not known
    gpu_layers: int | None  # the best `-ngl`; None: the device has no memory apart from the host's
    offload: Offload | None  # None: all of it fits, or there is nothing to choose
    ceiling: Ceiling | None
    decode_tok_s: Range | None
    ttft_s: Range | None
    request_s: Range | None
    bound: Bound | None  # what a decode step at full speed spends most of its time on
    notes: tuple[str, ...]


def predict(question: Question, target: Target, host: Target) -> Prediction:
    """Answer for one device.

    Args:
        question: what runs.
        target: the device.
        host: the system memory that takes what does not fit a device with a memory of its own.
    """
    needed_bytes = question.needed.total_bytes
    fits = None if target.capacity_bytes is None else needed_bytes <= target.capacity_bytes
    chosen = None if fits is not False else _offload(question, target, host)
    held = _placed(question, target, chosen, fits=fits)
    ceiling = _ceiling(question, held) if held else None
    decode = decode_tok_s(question, held) if held else None
    ttft = _ttft(question, target, held) if held and question.case.n_prompt else None
    return Prediction(
        target=target,
        fits=fits,
        needed_bytes=needed_bytes,
        kv_bytes_per_token=question.kv_bytes_per_token,
        kv_cache_bytes=question.kv_cache_bytes,
        max_context=_max_context(question, target.capacity_bytes),
        gpu_layers=chosen.best.n_gpu_layers if chosen else _gpu_layers(question, target),
        offload=chosen,
        ceiling=ceiling,
        decode_tok_s=decode,
        ttft_s=ttft,
        request_s=_request(question, decode, ttft) if decode else None,
        bound=_bound(question, held, ceiling) if ceiling else None,
        notes=tuple(_notes(question, target, host, held, fits=fits)),
    )


@lru_cache
def _max_context(question: Question, capacity_bytes: int | None) -> int | None:
    return None if capacity_bytes is None else max_context(question.weights, capacity_bytes, **question.kv)


def _gpu_layers(question: Question, target: Target) -> int | None:
    """The most that fit."""
    if target.link_bytes_s is None or target.capacity_bytes is None:
        return None
    return layers_that_fit(question, target.capacity_bytes)


def _offload(question: Question, target: Target, host: Target) -> Offload | None:
    if None in (target.hardware, target.link_bytes_s, target.capacity_bytes):
        return None
    return offload(question, target, host)


def _placed(question: Question, target: Target, chosen: Offload | None, *, fits: bool | None) -> tuple[Held, ...]:
    """Where the model lies, in the order in which a step passes through; nowhere where it cannot run."""
    if chosen is not None:
        return chosen.best.held
    if target.hardware is None or fits is False:
        return ()
    return tuple(Held(share, target.hardware) for share in whole(question.weights, target.memory))


def _ceiling(question: Question, held: Sequence[Held]) -> Ceiling:
    start = question.case.decode_start
    shares = [each.share for each in held]
    return decode_ceiling(shares, decode_start=start, n_steps=question.n_steps, **question.kv)


def _ttft(question: Question, target: Target, held: Sequence[Held]) -> Range:
    """Computing all of it on the device, or reading the weights once if that takes longer; then what crosses the link.

    llama.cpp computes a long prompt on the GPU even for layers that lie on the host, and copies them for it.
    """
    weights, case, hardware = question.weights, question.case, held[-1].hardware
    arch = weights.architecture
    flops = question.prefill_flops
    computing = prefill_flops_s(hardware, is_moe=arch.is_mixture)
    read_bytes = weights.expected_streamed_bytes(case.n_prompt)
    reading = decode_rate(hardware, read_bytes, arch.n_layers, is_mlx=question.is_mlx)
    copying_s = sum(_copying_s(question, target, each) for each in held if each.on_host)
    best, mid, worst = (
        max(flops / getattr(computing, name), 1 / getattr(reading, name)) + copying_s for name in ("high", "mid", "low")
    )
    return Range(best, mid, worst, computing.basis)


def _copying_s(question: Question, target: Target, held: Held) -> float:
    share, n_prompt = held.share, question.case.n_prompt
    n_bytes = share.expected_streamed_bytes(min(n_prompt, _PREFILL_PIECE))
    link_bytes_s = min(target.link_bytes_s or math.inf, held.hardware.bandwidth_bytes_s)
    return math.ceil(n_prompt / _PREFILL_PIECE) * n_bytes / link_bytes_s


def _request(question: Question, decode: Range, ttft: Range | None) -> Range:
    """From the prompt to the last token."""
    steps = question.case.n_steps
    first = (ttft.low, ttft.mid, ttft.high) if ttft else (0.0, 0.0, 0.0)
    if not ttft and not steps:
        raise ValueError("a request needs a prompt or tokens to generate")
    low, mid, high = (
        first_s + steps / rate for first_s, rate in zip(first, (decode.high, decode.mid, decode.low), strict=True)
    )
    return Range(low, mid, high, "TTFT and decode, both at their best or both at their worst")


def _bound(question: Question, held: Sequence[Held], ceiling: Ceiling) -> Bound:
    if ceiling.bound == "compute":
        return "compute"
    if not any(each.on_host for each in held):
        return "memory"
    slowest = max(held, key=lambda each: each.step_bytes(question) / each.hardware.bandwidth_bytes_s)
    return "host memory" if slowest.on_host else "memory"


def _notes(question: Question, target: Target, host: Target, held: Sequence[Held], *, fits: bool | None) -> list[str]:
    case, arch = question.case, question.weights.architecture
    notes = []
    if target.hardware is None:
        notes.append("the vendor's bandwidth is not known")
    elif not held:
        notes.append("does not fit, and there is no other memory")
    if target.capacity_bytes is None:
        notes.append("how much it can hold is not known; --capacity GB tells")
    if left := sum(len(each.share.layers) + each.share.output for each in held if each.on_host):
        notes.append(f"{left} of {arch.n_layers + 1} layers in {host.name}, whose size is not checked")
    elif held and fits is False:
        notes.append("all layers fit; the input embedding stays on the host")
    if arch.max_context is not None and case.context_tokens > arch.max_context:
        notes.append(f"{case.context_tokens} tokens are more than the {arch.max_context} that the model is made for")
    return notes
