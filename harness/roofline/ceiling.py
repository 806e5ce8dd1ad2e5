"""The fastest that decode and prefill could be: every byte at its memory's full speed, and nothing else takes time.

A step reads its weights and the whole KV cache once, and computes. It cannot be faster than either:
`t = max(bytes / bandwidth, FLOPs / rate)`, for each memory that holds a part of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np

from harness.roofline.architecture import Attention
from harness.roofline.checks import require, require_workload
from harness.roofline.parts import WHOLE, Part
from harness.roofline.traffic import decode_flops, kv_read_bytes, prefill_flops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from harness.roofline.architecture import Architecture
    from harness.roofline.weights import Weights

Bound = Literal["memory", "compute"]

# Wide enough for a network link and for a rack of accelerators, narrow enough that a number in GB/s is refused.
_LEAST_RATE, _MOST_BYTES_S, _MOST_FLOPS_S = 1e6, 1e17, 1e22


@dataclass(frozen=True)
class Memory:
    """One tier: a memory and the processor that computes on what it holds.

    Attributes:
        name: for people.
        bandwidth_bytes_s: of reading. A measured bandwidth depends on how much is read: give the point of the curve
            that matches the bytes of a step.
        flops_s: rate of matrix products; None: not known, and then only bytes bound a step.
        link_bytes_s: of the link (PCIe, NVLink-C2C, a network) over which the processor fetches the bytes; None:
            they are computed in place.

    Raises:
        ValueError: a number is negative, NaN or absurd.
    """

    name: str
    bandwidth_bytes_s: float
    flops_s: float | None = None
    link_bytes_s: float | None = None

    def __post_init__(self) -> None:
        require(f"bandwidth_bytes_s of {self.name}", self.bandwidth_bytes_s, _LEAST_RATE, _MOST_BYTES_S)
        if self.flops_s is not None:
            require(f"flops_s of {self.name}", self.flops_s, _LEAST_RATE, _MOST_FLOPS_S)
        if self.link_bytes_s is not None:
            require(f"link_bytes_s of {self.name}", self.link_bytes_s, _LEAST_RATE, _MOST_BYTES_S)

    @property
    def read_bytes_s(self) -> float:
        """Speed at which its bytes reach the processor: the slower of memory and link."""
        return min(self.bandwidth_bytes_s, self.link_bytes_s or self.bandwidth_bytes_s)


@dataclass(frozen=True)
class Share:
    """What one memory holds: these layers or some parts of them, and perhaps the output layer.

    Parts of a layer may lie apart: its KV cache (llama.cpp's -nkvo) or its experts (--n-cpu-moe) in the host's memory.
    The processor beside a memory computes what follows from what lies there. The output layer is dense.

    Raises:
        ValueError: the output layer without the dense part.
    """

    memory: Memory
    weights: Weights  # of the whole model
    layers: range
    output: bool
    parts: Part = WHOLE  # of each of the layers

    def __post_init__(self) -> None:
        if self.output and Part.DENSE not in self.parts:
            raise ValueError("the output layer lies with dense tensors")

    def streamed_bytes(self, batch: int = 1) -> float:
        """Weights that one decode step reads here, the fewest possible."""
        return self.weights.streamed_bytes(batch, self.layers, output=self.output, parts=self.parts)

    def expected_streamed_bytes(self, batch: int) -> float:
        """The same where each sequence chooses its experts at random."""
        return self.weights.expected_streamed_bytes(batch, self.layers, output=self.output, parts=self.parts)

    def kv_read_bytes(
        self, contexts: ArrayLike, k_element_bytes: float = 2, v_element_bytes: float | None = None
    ) -> NDArray[np.float64]:
        """KV cache that a decode step of one sequence reads here, for each context length."""
        held = self.layers if Part.KV in self.parts else range(0)
        return kv_read_bytes(self.weights.architecture, contexts, k_element_bytes, v_element_bytes, held)


@dataclass(frozen=True)
class Ceiling:
    """The decode rate that the memories allow, and what it follows from."""

    tok_s: float  # all sequences together, over all steps; each step reads the fewest experts possible
    expected_tok_s: float  # the same where the sequences choose their experts at random
    streamed_bytes: float  # weights that a step reads, all memories together, the fewest possible
    first_kv_bytes: float  # KV cache that the first step reads, all sequences together
    mean_kv_bytes: float  # that a step reads on average
    bound: Bound  # what most of the time goes to


def in_series(times: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Time of a step whose memories work one after the other: layers split between GPU and CPU, or machines."""
    total: NDArray[np.float64] = np.sum(times, axis=0)
    return total


def in_parallel(times: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Time of a step whose memories work at once, each layer split between them: the slowest decides."""
    slowest: NDArray[np.float64] = np.max(times, axis=0)
    return slowest


def whole(weights: Weights, memory: Memory) -> list[Share]:
    """One memory that holds the whole model."""
    return [Share(memory, weights, range(weights.architecture.n_layers), output=True)]


def decode_ceiling(
    shares: Sequence[Share],
    *,
    decode_start: int,
    n_steps: int,
    batch: int = 1,
    k_element_bytes: float = 2,
    v_element_bytes: float | None = None,
    parallel: bool = False,
) -> Ceiling:
    """The rate of `n_steps` decode steps, the context growing by a token each: `batch · n_steps / Σ t`.

    Args:
        shares: every part of every layer, and the output layer, on exactly one memory.
        decode_start: tokens in each sequence's KV cache at the first step.
        n_steps: steps that are timed.
        batch: sequences decoded at once.
        k_element_bytes: bytes of an element of the cached keys.
        v_element_bytes: of the values; None: as the keys.
        parallel: the shares are worked on at once, each by a memory of its own, not one after the other.

    Raises:
        ValueError: a number is out of range, or a part of a layer lies on no memory or on two.
    """
    require_workload(decode_start, batch, k_element_bytes, v_element_bytes)
    require("n_steps", n_steps, 1, 10**7)
    _require_complete(shares)
    combine = in_parallel if parallel else in_series
    contexts = np.arange(decode_start, decode_start + n_steps)
    kv_bytes = [batch * share.kv_read_bytes(contexts, k_element_bytes, v_element_bytes) for share in shares]
    streamed = [share.streamed_bytes(batch) for share in shares]
    expected = [share.expected_streamed_bytes(batch) for share in shares]
    reading = [_reading_s(*each) for each in zip(shares, streamed, kv_bytes, strict=True)]
    computing = [_computing_s(share, contexts, batch) for share in shares]

    def rate(read_s: list[NDArray[np.float64]]) -> float:
        steps_s = combine([np.maximum(*both) for both in zip(read_s, computing, strict=True)])
        return batch * n_steps / float(steps_s.sum())

    all_kv = np.sum(kv_bytes, axis=0)
    return Ceiling(
        tok_s=rate(reading),
        expected_tok_s=rate([_reading_s(*each) for each in zip(shares, expected, kv_bytes, strict=True)]),
        streamed_bytes=sum(streamed),
        first_kv_bytes=float(all_kv[0]),
        mean_kv_bytes=float(all_kv.mean()),
        bound="compute" if combine(computing).sum() > combine(reading).sum() else "memory",
    )


def prefill_ceiling(
    shares: Sequence[Share],
    *,
    prompt: int,
    depth: int = 0,
    batch: int = 1,
    k_element_bytes: float = 2,
    v_element_bytes: float | None = None,
    parallel: bool = False,
) -> float | None:
    """Prompt tokens a second, all sequences together, of one prefill: `batch · prompt / t`.

    The weights and what the cache already holds are read at least once, of a mixture the fewest experts; the keys
    and values of the prompt itself may stay on the chip.

    Args:
        shares: every part of every layer, and the output layer, on exactly one memory.
        prompt: tokens of each sequence's prompt.
        depth: tokens already in each sequence's KV cache.
        batch: sequences.
        k_element_bytes: bytes of an element of the cached keys.
        v_element_bytes: of the values; None: as the keys.
        parallel: the shares are worked on at once, each by a memory of its own, not one after the other.

    Returns:
        Tokens a second; None where a memory's `flops_s` is not known.

    Raises:
        ValueError: a number is out of range, or a part of a layer lies on no memory or on two.
    """
    require_workload(depth, batch, k_element_bytes, v_element_bytes)
    require("prompt", prompt, 1, 2**30)
    _require_complete(shares)
    times = []
    for share in shares:
        if share.memory.flops_s is None:
            return None
        kv_bytes = share.kv_read_bytes(depth, k_element_bytes, v_element_bytes)
        n_bytes = share.streamed_bytes(batch) + batch * float(kv_bytes)
        flops = prefill_flops(_held(share), prompt, depth, batch, share.parts)
        times.append(np.asarray(max(n_bytes / share.memory.read_bytes_s, flops / share.memory.flops_s)))
    return batch * prompt / float((in_parallel if parallel else in_series)(times))


def _require_complete(shares: Sequence[Share]) -> None:
    """Every part of every layer on exactly one memory."""
    if not shares:
        raise ValueError("no memory holds the model")
    n_layers = shares[0].weights.architecture.n_layers
    for part in WHOLE:
        held = sorted(chain.from_iterable(share.layers for share in shares if part in share.parts))
        if held != list(range(n_layers)):
            name = str(part.name).lower()
            raise ValueError(f"the memories hold layers {held} ({name}), not each of {n_layers} layers once")
    if sum(share.output for share in shares) != 1:
        raise ValueError("the output layer must lie on exactly one memory")


def _reading_s(share: Share, weight_bytes: float, kv_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds that the bytes of a share's steps take."""
    return (weight_bytes + kv_bytes) / share.memory.read_bytes_s


def _computing_s(share: Share, contexts: NDArray[np.int64], batch: int) -> NDArray[np.float64]:
    """Seconds that the FLOPs of a share's steps take; zeros where the rate is not known."""
    if share.memory.flops_s is None:
        return np.zeros(len(contexts))
    held = _held(share)
    first, last = int(contexts[0]), int(contexts[-1])
    # FLOPs are linear in the context but for two kinks, so a few points give all of them: where a window is full, and
    # after the first token, from where on latent attention is cheaper in its compressed space.
    full = {
        layer.mixer.window - 1
        for layer in held.layers
        if isinstance(layer.mixer, Attention) and layer.mixer.window is not None
    }
    knots = sorted({first, last} | {knot for knot in full | {1} if first < knot < last})
    flops = [decode_flops(held, knot, batch, share.parts) for knot in knots]
    return np.interp(contexts, knots, flops) / share.memory.flops_s


def _held(share: Share) -> Architecture:
    """The model as if it had only what this share holds."""
    arch = share.weights.architecture
    layers = arch.layers[share.layers.start : share.layers.stop]
    if share.output:
        return replace(arch, layers=layers)
    return replace(arch, layers=layers, vocab_size=0, vector_elements=0, matrix_elements=0)
