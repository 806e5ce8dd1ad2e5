"""Which working sets are read, in which order, and for how long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from harness.machine.bandwidth.curve import Curve, Point, Rate

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str, float], None]  # what is measured now, and the share of the whole that is done

_SMALLEST = 2**20
_LARGEST = 2**31  # well past the largest last-level cache that is sold: 1152 MiB, AMD EPYC 9684X
_MEMORY_SHARE = 4  # no more than one part in four of what is free
_SAMPLE_S = 0.02
_LEAST_ROUNDS = 3  # for a median
_MOST_ROUNDS = 9


class Memory(Protocol):
    """A memory that can be read."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """The ways to read it."""

    def warm(self, n_bytes: int) -> None:
        """Bring the working set into whatever cache holds it: read it once."""

    def read_rate(self, kernel: str, n_bytes: int, seconds: float) -> float:
        """Read the first `n_bytes` again and again, for about that long; bytes a second."""


def working_sets(free_bytes: int) -> list[int]:
    """Powers of two from 1 MiB to 2 GiB, but no more than a quarter of what is free.

    Raises:
        ValueError: that leaves nothing.
    """
    largest = min(_LARGEST, free_bytes // _MEMORY_SHARE)
    sizes = [2**power for power in range(_SMALLEST.bit_length() - 1, largest.bit_length())]
    if not sizes:
        raise ValueError(f"{free_bytes} bytes of free memory are too few to measure its bandwidth")
    return sizes


def sweep(
    memory: Memory,
    sizes: list[int],
    deadline: float,
    progress: Progress,
    clock: Callable[[], float] = time.perf_counter,
) -> Curve:
    """Measure the curve.

    In rounds over all sizes and kernels, so that a disturbance of some seconds spoils one sample of each and not all
    samples of one. As many rounds as end before the deadline, but no fewer than a median needs.

    Args:
        memory: what to read.
        sizes: working sets in bytes, ascending.
        deadline: on the clock.
        progress: told the working set, and the share of the time that has passed.
        clock: seconds.
    """
    samples: dict[int, dict[str, list[float]]] = {size: {name: [] for name in memory.kernels} for size in sizes}
    began = clock()
    for done in range(1, _MOST_ROUNDS + 1):
        for size in sizes:
            progress(f"reading {_text(size)}", min(1.0, (clock() - began) / max(deadline - began, 1.0)))
            memory.warm(size)
            for kernel in memory.kernels:
                samples[size][kernel].append(memory.read_rate(kernel, size, _SAMPLE_S))
        a_round_s = (clock() - began) / done
        if done >= _LEAST_ROUNDS and clock() + a_round_s > deadline:
            break
    return Curve(
        tuple(
            Point(size, {name: Rate(tuple(rates)) for name, rates in kernels.items()})
            for size, kernels in samples.items()
        )
    )


def _text(n_bytes: int) -> str:
    return f"{n_bytes // 2**30} GiB" if n_bytes >= 2**30 else f"{n_bytes // 2**20} MiB"
