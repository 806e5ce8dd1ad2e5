"""The counters that the worker reads around a repetition."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from numpy.typing import NDArray

from backends import simulated
from backends.base import LoadRequest
from harness import measure
from harness.machine.conditions import energy, window
from harness.workload import Case, token_stream


class _Meter(energy.Meter):
    """A counter in millijoules that shows these, one after the other."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__((energy.Counter(iter(counts).__next__, 1e-3, least_s=0.0),))


def test_a_window_counts_what_its_block_cost() -> None:
    counting = window.Window(_Meter([5000, 17_000]))
    with counting:
        np.ones(1000).sum()
    assert counting.counted["values"] == {"energy_j": pytest.approx(12.0)}
    assert "shorter than 0.2 s" in counting.counted["missing"]["cpu_busy_other_pct"]
    json.dumps(counting.counted)


def test_each_block_is_counted_by_itself() -> None:
    counting = window.Window(_Meter([5000, 17_000, 90_000, 91_000]))
    for joules in (12.0, 1.0):
        with counting:
            pass
        assert counting.counted["values"]["energy_j"] == pytest.approx(joules)


def test_a_window_that_is_long_enough_tells_the_load() -> None:
    counting = window.Window(energy.Meter(missing="no counter"))
    with counting:
        time.sleep(0.25)
    assert 0 <= counting.counted["values"]["cpu_busy_other_pct"] <= 100
    assert counting.counted["missing"] == {"energy_j": "no counter"}


class _Around:
    """Keeps when its block began and ended, between the calls of a session."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def __enter__(self) -> Self:
        self._calls.append("in")
        self.began_ns = time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended_ns = time.perf_counter_ns()
        self._calls.append("out")


class _Session(simulated.SimulatedSession):
    def __init__(self, calls: list[str]) -> None:
        super().__init__(LoadRequest(Path("none"), None), simulated.Options(ttft_s=0.01, itl_s=0.001))
        self._calls = calls

    def prefill(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        self._calls.append(f"prefill {tokens.shape[1]}")
        return super().prefill(tokens)

    def decode(self, tokens: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
        yield from super().decode(tokens)
        self._calls.append(f"decoded {tokens.shape[1]}")


def test_the_timed_part_and_nothing_else_lies_in_the_window() -> None:
    case, calls = Case(24, 16, 8), list[str]()
    session, around = _Session(calls), _Around(calls)
    tokens = token_stream(case.context_tokens, 1, session.vocab_size, 1)
    session.allocate(case.context_tokens, 1)
    measure.fill(session, case, tokens)
    sample = measure.repeat(session, case, tokens, around)
    assert calls == ["prefill 24", "in", "prefill 16", "decoded 7", "out"]
    assert sample.ttft_ns is not None
    assert around.ended_ns - around.began_ns >= sample.ttft_ns + sample.step_ns.sum()
