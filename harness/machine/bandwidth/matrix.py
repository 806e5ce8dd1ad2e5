"""The rate of matrix products, which bounds prefill."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from harness.machine.bandwidth.curve import Rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.bandwidth import Multiply

_SMALLEST, _LARGEST = 256, 8192  # rows and columns
_LONGEST_S = 0.1  # of one product: a processor without the type's instructions may take a thousand times as long
_TRIES = 3
_SAMPLE_S = 0.05
_SAMPLES = 5


def matrix_rate(prepare: Callable[[int], Multiply], clock: Callable[[], float] = time.perf_counter) -> Rate:
    """FLOP a second of square products, by the largest that stays short.

    Args:
        prepare: makes two matrices of n × n; returns what multiplies them.
        clock: seconds.
    """
    n = _SMALLEST
    while True:
        multiply = prepare(n)
        multiply(1)  # the first call may compile or tune
        one_s = min(_seconds(multiply, 1, clock) for _ in range(_TRIES))  # one may be disturbed
        if n == _LARGEST or 8 * one_s > _LONGEST_S:
            break
        n *= 2
    passes = math.ceil(_SAMPLE_S / one_s)
    return Rate(tuple(2 * n**3 * passes / _seconds(multiply, passes, clock) for _ in range(_SAMPLES)))


def _seconds(multiply: Multiply, passes: int, clock: Callable[[], float]) -> float:
    began = clock()
    multiply(passes)
    return clock() - began
