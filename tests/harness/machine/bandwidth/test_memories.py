"""The host's threads read what they should; the accelerator's and the matrix's figures come out of the clock."""

import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.bandwidth import Multiply
from harness.machine.bandwidth.accelerator import AcceleratorMemory
from harness.machine.bandwidth.host import NUMPY_KERNELS, HostMemory
from harness.machine.bandwidth.matrix import matrix_rate

MIB = 2**20


class Recorder:
    """A kernel that notes which words each thread was given."""

    def __init__(self) -> None:
        self.parts: dict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def __call__(self, words: np.ndarray, passes: int) -> Callable[[], Any]:
        address = words.__array_interface__["data"][0]
        return lambda: self.parts[threading.get_ident()].append((address, words.nbytes, passes))


@given(n_threads=st.integers(1, 5), n_bytes=st.integers(MIB, 64 * MIB))
@settings(max_examples=10, deadline=None)
def test_every_thread_reads_its_own_part_from_end_to_end(n_threads: int, n_bytes: int) -> None:
    recorder = Recorder()
    memory = HostMemory({"note": recorder}, n_threads, 64 * MIB)
    memory.warm(n_bytes)
    memory.close()
    assert len(recorder.parts) == n_threads
    spans = []
    for pieces in recorder.parts.values():
        for (start, size, _), (following, _, _) in pairwise(pieces):
            assert start + size == following
        spans.append((pieces[0][0], sum(size for _, size, _ in pieces)))
    spans.sort()
    assert all(start + size <= following for (start, size), (following, _) in pairwise(spans))
    # Whole cache lines each: less than one line a thread is left out.
    assert 0 <= n_bytes - sum(size for _, size in spans) < 64 * n_threads


def test_a_small_part_is_read_many_times_in_one_call() -> None:
    recorder = Recorder()
    memory = HostMemory({"note": recorder}, 2, MIB)
    memory.warm(MIB)
    memory.close()
    for ((_, size, passes),) in recorder.parts.values():
        assert (size, passes) == (MIB // 2, 16)  # 8 MiB a call


def test_a_thread_keeps_its_part() -> None:
    recorder = Recorder()
    memory = HostMemory({"note": recorder}, 3, 4 * MIB)
    for _ in range(20):
        memory.warm(4 * MIB)
    memory.close()
    assert len(recorder.parts) == 3
    assert all(len({start for start, _, _ in pieces}) == 1 for pieces in recorder.parts.values())


def test_a_kernel_that_fails_is_an_error_and_not_a_wait_for_ever() -> None:
    def broken(*_: object) -> Callable[[], Any]:
        raise MemoryError

    memory = HostMemory({"broken": broken}, 2, MIB)
    with pytest.raises((MemoryError, threading.BrokenBarrierError)):
        memory.read_rate("broken", MIB, 0.01)
    memory.close()


@pytest.mark.parametrize("kernel", NUMPY_KERNELS)
def test_the_hosts_memory_is_read_at_a_possible_rate(kernel: str) -> None:
    memory = HostMemory(NUMPY_KERNELS, 2, 4 * MIB)
    assert memory.kernels == tuple(NUMPY_KERNELS)
    memory.warm(4 * MIB)
    # Any computer this runs on reads more than 100 MB/s, and no two cores read 10 TB/s.
    assert 1e8 < memory.read_rate(kernel, 4 * MIB, 0.01) < 1e13
    memory.close()


class Clock:
    """Moves only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_an_accelerators_rate_is_bytes_over_time() -> None:
    clock, passes_seen = Clock(), []

    def read(n_bytes: int, passes: int) -> None:
        passes_seen.append(passes)
        clock.sleep(passes * n_bytes / 1e9)  # 1 GB/s

    memory = AcceleratorMemory({"max": read}, clock)
    # 4 MiB take 4.2 ms, so 20 ms are five passes.
    assert memory.read_rate("max", 4 * MIB, 0.02) == pytest.approx(1e9)
    assert passes_seen == [1, 5]


def test_waiting_for_the_device_hardly_counts() -> None:
    clock = Clock()

    def read(n_bytes: int, passes: int) -> None:
        clock.sleep(100e-6 + passes * n_bytes / 1e12)

    rate = AcceleratorMemory({"max": read}, clock).read_rate("max", 256 * MIB, 0.02)
    assert rate == pytest.approx(1e12, rel=0.01)


def _processor(flops_s: float, clock: Clock, sizes: list[int]) -> Callable[[int], Multiply]:
    def prepare(n: int) -> Multiply:
        sizes.append(n)
        return lambda passes: clock.sleep(passes * 2 * n**3 / flops_s)

    return prepare


@pytest.mark.parametrize(
    ("flops_s", "largest"),
    [
        (1e8, 256),  # no instructions for the type: a third of a second for the smallest
        (1e11, 1024),  # 0.02 s; 2048 would take 0.17 s
        (5e12, 4096),  # 0.03 s; 8192 would take 0.22 s
        (1e15, 8192),
    ],
)
def test_the_largest_product_that_stays_short_is_timed(flops_s: float, largest: int) -> None:
    clock, sizes = Clock(), []
    rate = matrix_rate(_processor(flops_s, clock, sizes), clock)
    assert rate.best == pytest.approx(flops_s)
    assert rate.median == pytest.approx(flops_s)
    assert sizes[-1] == largest
    assert len(rate.samples) == 5
    assert clock.now < 4


def test_one_disturbed_product_does_not_decide_the_size() -> None:
    clock, sizes, calls = Clock(), [], []

    def prepare(n: int) -> Multiply:
        sizes.append(n)

        def multiply(passes: int) -> None:
            calls.append(passes)
            clock.sleep(passes * 2 * n**3 / 1e11 + (0.5 if len(calls) == 2 else 0))

        return multiply

    assert matrix_rate(prepare, clock).best == pytest.approx(1e11)
    assert sizes[-1] == 1024
