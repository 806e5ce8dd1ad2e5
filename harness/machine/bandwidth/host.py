"""Read the host's memory as an engine does in a decode step: all cores, each on its own part, again and again."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    # Binds words to a call that reads all of them `passes` times, in the calling thread, without the interpreter
    # lock. It returns what the kernel's name says of the words, once for each pass.
    Kernel = Callable[[NDArray[np.float32], int], Callable[[], Any]]

_CALL_BYTES = 8 * 2**20  # read by one call: long beside Python's microseconds, short beside a sample
_LINE_BYTES = 64  # a cache line: no two threads share one
_TILE_BYTES = 2**20


def _numpy_kernel(ufunc: np.ufunc, dtype: type[np.generic]) -> Kernel:
    def bind(words: NDArray[np.float32], passes: int) -> Callable[[], Any]:
        typed = words.view(dtype)
        # The same words in every row: numpy's inner loop reads them `passes` times without coming back to Python.
        rows = np.broadcast_to(typed, (passes, typed.size))
        return lambda: ufunc.reduce(rows, axis=1)

    return bind


# No one kernel is the fastest everywhere: it depends on the processor, the size, and how numpy was compiled.
NUMPY_KERNELS: dict[str, Kernel] = {
    "numpy xor int64": _numpy_kernel(np.bitwise_xor, np.int64),
    "numpy max int32": _numpy_kernel(np.maximum, np.int32),
}


class HostMemory:
    """See `sweep.Memory`. Each thread owns one part of the working set and touches its pages first."""

    def __init__(self, kernels: Mapping[str, Kernel], n_threads: int, n_bytes: int) -> None:
        self._kernels = kernels
        self._n_threads = n_threads
        self._part_bytes = self._part(n_bytes)
        self._own = threading.local()
        self._start = threading.Barrier(n_threads)
        # A part stays with its thread: the barrier keeps any thread from taking two tasks of one call.
        self._pool = ThreadPoolExecutor(n_threads, initializer=self._touch)
        self._in_all_threads(lambda: None)  # starts them

    @property
    def kernels(self) -> tuple[str, ...]:
        """The ways to read."""
        return tuple(self._kernels)

    def close(self) -> None:
        """End the threads, which frees the memory."""
        self._pool.shutdown()

    def warm(self, n_bytes: int) -> None:
        """Read the working set once."""
        first = next(iter(self._kernels.values()))
        self._in_all_threads(lambda: [call() for call, _ in self._calls(first, n_bytes)])

    def read_rate(self, kernel: str, n_bytes: int, seconds: float) -> float:
        """Bytes a second of all threads together; each reads for `seconds`, or makes one call if that takes longer."""
        bind = self._kernels[kernel]
        return float(sum(self._in_all_threads(lambda: _rate(self._calls(bind, n_bytes), self._start, seconds))))

    def _in_all_threads(self, task: Callable[[], Any]) -> list[Any]:
        def together() -> Any:
            try:
                self._start.wait()
                return task()
            except BaseException:
                self._start.abort()  # or the others would wait for this one
                raise

        return [future.result() for future in [self._pool.submit(together) for _ in range(self._n_threads)]]

    def _calls(self, bind: Kernel, n_bytes: int) -> list[tuple[Callable[[], Any], int]]:
        """Calls that read this thread's part from end to end, and the bytes that each reads."""
        words = self._own.words[: self._part(n_bytes) // 4]
        # Many threads get the interpreter lock less often.
        call_words = max(_CALL_BYTES, self._n_threads * 2**20) // 4
        if words.size < call_words:
            passes = call_words // words.size
            return [(bind(words, passes), passes * words.nbytes)]
        pieces = [words[start : start + call_words] for start in range(0, words.size, call_words)]
        return [(bind(piece, 1), piece.nbytes) for piece in pieces]

    def _part(self, n_bytes: int) -> int:
        return max(1, n_bytes // self._n_threads // _LINE_BYTES) * _LINE_BYTES

    def _touch(self) -> None:
        tile = np.random.default_rng(0).standard_normal(_TILE_BYTES // 4, dtype=np.float32)
        self._own.words = np.empty(self._part_bytes // 4, dtype=np.float32)
        for start in range(0, self._own.words.size, tile.size):
            part = self._own.words[start : start + tile.size]
            part[:] = tile[: part.size]


def _rate(calls: list[tuple[Callable[[], Any], int]], start: threading.Barrier, seconds: float) -> float:
    """Read for `seconds`, in turn over the part; bytes a second of this thread.

    The call that ends after the time only keeps the memory busy for the other threads: it counts if it is the only
    one. So every byte that counts was read while all threads read.
    """
    start.wait()
    began = last = time.perf_counter()
    n_bytes = 0
    for call, call_bytes in itertools.cycle(calls):
        call()
        now = time.perf_counter()
        if n_bytes and now > began + seconds:
            break
        n_bytes += call_bytes
        last = now
    return n_bytes / (last - began)
