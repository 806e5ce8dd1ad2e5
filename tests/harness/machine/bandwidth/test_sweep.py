"""Sizes, rounds and the budget of time, with a clock and a memory of our own."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine.bandwidth.sweep import sweep, working_sets

MIB, GIB = 2**20, 2**30


@dataclass
class TimedMemory:
    """Each sample takes `sample_s` of its clock, and each byte is read at the same rate, but for one bad spell."""

    sample_s: float
    now: float = 0.0
    kernels: tuple[str, ...] = ("xor", "max")
    read: list[tuple[str, int]] = field(default_factory=list)
    warmed: list[int] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def warm(self, n_bytes: int) -> None:
        self.warmed.append(n_bytes)

    def read_rate(self, kernel: str, n_bytes: int, seconds: float) -> float:
        self.now += self.sample_s
        self.read.append((kernel, n_bytes))
        return float(n_bytes if kernel == "xor" else 2 * n_bytes)


def _quiet(what: str, share: float) -> None:
    pass


def test_sizes_go_from_one_mib_to_two_gib() -> None:
    sizes = working_sets(100 * GIB)
    assert sizes[:3] == [MIB, 2 * MIB, 4 * MIB]
    assert sizes[-1] == 2 * GIB
    assert len(sizes) == 12


def test_no_more_than_a_quarter_of_what_is_free_is_taken() -> None:
    assert working_sets(4 * GIB)[-1] == GIB
    assert working_sets(4 * GIB - 1)[-1] == GIB // 2
    with pytest.raises(ValueError, match="too few"):
        working_sets(4 * MIB - 1)


@given(st.integers(4 * MIB, 2**45))
def test_sizes_ascend_and_fit(free_bytes: int) -> None:
    sizes = working_sets(free_bytes)
    assert sizes == sorted(set(sizes))
    assert 4 * sizes[-1] <= free_bytes


def test_a_curve_has_every_size_and_every_sample() -> None:
    memory = TimedMemory(sample_s=1.0)
    curve = sweep(memory, [MIB, GIB], 0.0, _quiet, memory.clock)
    assert [point.working_set_bytes for point in curve.points] == [MIB, GIB]
    assert curve.points[1].kernels["max"].samples == (2 * GIB,) * 3
    assert curve.points[1].kernel == "max"
    assert memory.read[:4] == [("xor", MIB), ("max", MIB), ("xor", GIB), ("max", GIB)]
    assert memory.warmed == [MIB, GIB] * 3


@pytest.mark.parametrize(
    ("deadline", "rounds"),
    [
        (0.0, 3),  # no time at all: still what a median needs
        (19.9, 4),  # a round takes four seconds: the fifth would end after the time
        (20.0, 5),
        (1000.0, 9),  # more would tell nothing new
    ],
)
def test_rounds_end_before_the_deadline(deadline: float, rounds: int) -> None:
    memory = TimedMemory(sample_s=1.0)
    curve = sweep(memory, [MIB, GIB], deadline, _quiet, memory.clock)
    assert len(curve.points[0].kernels["xor"].samples) == rounds
    assert memory.now == 4 * rounds


def test_progress_never_goes_back_or_past_the_whole() -> None:
    memory = TimedMemory(sample_s=1.0)
    told: list[tuple[str, float]] = []
    sweep(memory, [MIB, GIB], 10.0, lambda what, share: told.append((what, share)), memory.clock)
    assert told[:3] == [("reading 1 MiB", 0.0), ("reading 1 GiB", 0.2), ("reading 1 MiB", 0.4)]
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
