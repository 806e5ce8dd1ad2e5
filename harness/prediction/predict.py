"""What a model would do on a device: does it fit, how fast could and will it decode, how long does a request take.

Decode and prefill rates come as ranges from `efficiency.py` and `prefill.py`, fits and ceilings from the arithmetic of
`harness.roofline`. One sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, TypedDict

from harness.prediction.efficiency import decode_rate, is_mlx_format
from harness.prediction.hardware import Range
from harness.prediction.prefill import prefill_flops_s
from harness.roofline.ceiling import decode_ceiling, whole
from harness.roofline.placement import gpu_layers, max_context, needs, split
from harness.roofline.traffic import kv_bytes_per_token, kv_cache_bytes, kv_read_bytes, prefill_flops

if TYPE_CHECKING:
    from harness.prediction.hardware import Hardware
    from harness.prediction.target import Target
    from harness.roofline.ceiling import Ceiling, Share
    from harness.roofline.placement import Needs
    from harness.roofline.weights import Weights
    from harness.workload import Case

Bound = Literal["memory", "host memory", "compute"]

_PREFILL_PIECE = 512  # tokens llama.cpp computes at once: a layer left on the host crosses the link once for each piece


class _KvFormat(TypedDict):
    k_element_bytes: float
    v_element_bytes: float


@dataclass(frozen=True, eq=False)  # equal only to itself: a cache need not hash every tensor to find it
class Question:
    """A model in its format, and the request of one sequence."""

    weights: Weights
    case: Case
    k_element_bytes: float = 2
    v_element_bytes: float = 2
    weight_format: str | None = None  # as it was asked for; None: as the artifact has its tensors

    @property
    def kv(self) -> _KvFormat:
        """The KV format, as the arithmetic takes it."""
        return {"k_element_bytes": self.k_element_bytes, "v_element_bytes": self.v_element_bytes}

    @cached_property
    def is_mlx(self) -> bool:
        """Whether the weights are in one of MLX's formats; of quantised tensors only MLX's have `biases`."""
        if self.weight_format is not None:
            return is_mlx_format(self.weight_format)
        return any(part.name.endswith(".biases") for part in self.weights.parts)

    @cached_property
    def needed(self) -> Needs:
        """Of the whole model in one memory."""
        return needs(self.weights, context=self.case.context_tokens, **self.kv)

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """In all layers."""
        return round(kv_bytes_per_token(self.weights.architecture, **self.kv))

    @cached_property
    def kv_cache_bytes(self) -> int:
        """When the request's last token is out, to the byte."""
        return round(kv_cache_bytes(self.weights.architecture, self.case.context_tokens, **self.kv))

    @cached_property
    def prefill_flops(self) -> int:
        """Of the prompt, after the depth."""
        return prefill_flops(self.weights.architecture, self.case.n_prompt, self.case.n_depth)

    @property
    def n_steps(self) -> int:
        """Decode steps that a rate is told for: those of the case, or the one that would follow."""
        return max(self.case.n_steps, 1)


@dataclass(frozen=True)
class Prediction:
    """The answer for one device; None where there is none, and `notes` says why."""

    target: Target
    fits: bool | None  # wholly in the device's memory; None: its capacity is not known
    needed_bytes: int  # weights, KV cache as llama.cpp allocates it, and workspace
    kv_bytes_per_token: int
    kv_cache_bytes: int  # to the byte
    max_context: int | None  # None: not even one token fits, or the capacity is not known
    gpu_layers: int | None  # as llama.cpp counts them; None: the device has no memory apart from the host's
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
    layers = None if target.link_bytes_s is None else _gpu_layers(question, target.capacity_bytes)
    held = _placed(question, target, host, fits=fits, layers=layers)
    ceiling = _ceiling(question, held) if held else None
    decode = _decode(question, held) if held else None
    ttft = _ttft(question, target, held) if held and question.case.n_prompt else None
    return Prediction(
        target=target,
        fits=fits,
        needed_bytes=needed_bytes,
        kv_bytes_per_token=question.kv_bytes_per_token,
        kv_cache_bytes=question.kv_cache_bytes,
        max_context=_max_context(question, target.capacity_bytes),
        gpu_layers=layers,
        ceiling=ceiling,
        decode_tok_s=decode,
        ttft_s=ttft,
        request_s=_request(question, decode, ttft) if decode else None,
        bound=_bound(question, held, ceiling) if ceiling else None,
        notes=tuple(_notes(question, target, host, held, fits=fits)),
    )


@dataclass(frozen=True)
class _Held:
    """A part of the model in one memory, which computes there."""

    share: Share
    hardware: Hardware
    on_host: bool = False

    def step_bytes(self, question: Question) -> float:
        """Weights and KV cache that an average decode step reads here."""
        case, share = question.case, self.share
        contexts = [case.decode_start, case.decode_start + question.n_steps - 1]
        kv_bytes = kv_read_bytes(share.weights.architecture, contexts, **question.kv, layers=share.layers).mean()
        return share.weights.streamed_bytes(1, share.layers, output=share.output) + float(kv_bytes)


@lru_cache
def _max_context(question: Question, capacity_bytes: int | None) -> int | None:
    return None if capacity_bytes is None else max_context(question.weights, capacity_bytes, **question.kv)


@lru_cache
def _gpu_layers(question: Question, capacity_bytes: int | None) -> int | None:
    if capacity_bytes is None:
        return None
    return gpu_layers(question.weights, capacity_bytes, context=question.case.context_tokens, **question.kv)


def _placed(question: Question, target: Target, host: Target, *, fits: bool | None, layers: int | None) -> list[_Held]:
    """Where the model lies, in the order in which a step passes through; nowhere where it cannot run."""
    if target.hardware is None:
        return []
    if fits is not False:
        return [_Held(share, target.hardware) for share in whole(question.weights, target.memory)]
    if layers is None or host.hardware is None:
        return []
    shares = split(question.weights, layers, target.memory, host.memory)
    hardware = {target.memory: target.hardware, host.memory: host.hardware}
    return [_Held(share, hardware[share.memory], on_host=share.memory == host.memory) for share in shares]


def _ceiling(question: Question, held: list[_Held]) -> Ceiling:
    start = question.case.decode_start
    shares = [each.share for each in held]
    return decode_ceiling(shares, decode_start=start, n_steps=question.n_steps, **question.kv)


def _decode(question: Question, held: list[_Held]) -> Range:
    """The memories work one after the other: their times add up."""
    rates = [
        decode_rate(each.hardware, each.step_bytes(question), len(each.share.layers) or 1, is_mlx=question.is_mlx)
        for each in held
    ]
    low, mid, high = (1 / sum(1 / getattr(rate, name) for rate in rates) for name in ("low", "mid", "high"))
    return Range(low, mid, high, "; ".join(rate.basis for rate in rates))


def _ttft(question: Question, target: Target, held: list[_Held]) -> Range:
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


def _copying_s(question: Question, target: Target, held: _Held) -> float:
    share, n_prompt = held.share, question.case.n_prompt
    n_bytes = share.weights.expected_streamed_bytes(min(n_prompt, _PREFILL_PIECE), share.layers, output=share.output)
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


def _bound(question: Question, held: list[_Held], ceiling: Ceiling) -> Bound:
    if ceiling.bound == "compute":
        return "compute"
    if not any(each.on_host for each in held):
        return "memory"
    slowest = max(held, key=lambda each: each.step_bytes(question) / each.hardware.bandwidth_bytes_s)
    return "host memory" if slowest.on_host else "memory"


def _notes(question: Question, target: Target, host: Target, held: list[_Held], *, fits: bool | None) -> list[str]:
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
