"""Read an accelerator's memory through an engine that sees it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backends.bandwidth import Read


class AcceleratorMemory:
    """See `sweep.Memory`. The engine queues the passes of a sample one after the other and waits for the last."""

    def __init__(self, readers: Mapping[str, Read], clock: Callable[[], float] = time.perf_counter) -> None:
        self._readers = readers
        self._clock = clock

    @property
    def kernels(self) -> tuple[str, ...]:
        """The ways to read."""
        return tuple(self._readers)

    def warm(self, n_bytes: int) -> None:
        """Run every kernel once: at its first call with a shape, an engine may compile or tune it."""
        for read in self._readers.values():
            read(n_bytes, 1)

    def read_rate(self, kernel: str, n_bytes: int, seconds: float) -> float:
        """Bytes a second of as many passes as take about `seconds`, by the time of one."""
        read = self._readers[kernel]
        passes = math.ceil(seconds / self._seconds(read, n_bytes, 1))
        return passes * n_bytes / self._seconds(read, n_bytes, passes)

    def _seconds(self, read: Read, n_bytes: int, passes: int) -> float:
        began = self._clock()
        read(n_bytes, passes)
        return self._clock() - began
