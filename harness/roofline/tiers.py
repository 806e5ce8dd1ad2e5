"""The speed that each memory of a split model really reaches, from timed steps: `t = Σ bytes_k / speed_k`.

As many steps with different splits as there are memories give the speeds; these give the time of any other split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]


def effective_speeds(read_bytes: ArrayLike, step_s: ArrayLike) -> Floats | None:
    """The speed of each memory, all that its part of a step takes counted in.

    Args:
        read_bytes: `[k, k]`, bytes that a step of each split reads in each of `k` memories.
        step_s: `[k]`, seconds of a step of each split.

    Returns:
        `[k]` bytes a second; None where the splits do not tell the memories apart, or the times contradict each other
        (a memory would need no time, or less).
    """
    table, times = np.asarray(read_bytes, np.float64), np.asarray(step_s, np.float64)
    if table.shape != (len(times), len(times)):
        raise ValueError(f"{table.shape} bytes for {len(times)} times: as many splits as memories are needed")
    try:
        seconds_a_byte = np.linalg.solve(table, times)
    except np.linalg.LinAlgError:
        return None
    return 1 / seconds_a_byte if (seconds_a_byte > 0).all() else None


def step_seconds(read_bytes: ArrayLike, speeds: ArrayLike) -> Floats:
    """Time of a step of each split, its memories one after the other.

    Args:
        read_bytes: `[n, k]`, bytes that a step of each split reads in each memory.
        speeds: `[k]`, bytes a second.

    Returns:
        `[n]` seconds.
    """
    found: Floats = np.asarray(read_bytes, np.float64) @ (1 / np.asarray(speeds, np.float64))
    return found
