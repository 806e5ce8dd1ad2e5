"""The time that a suite may take, with the estimates of a real work."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import EngineInfo
from harness.estimate import Rates
from harness.models.source import resolve
from harness.options import Options
from harness.suites.budget import Budget, duration
from harness.work import Work, combinations
from harness.workload import Case

CASES = (Case(0, 512, 128), Case(0, 512, 1024), Case(0, 512, 16))


@pytest.fixture(scope="module")
def work() -> Work:
    """On 2.47 GB/s a token of Llama 3.2 1B takes a second, and all else next to nothing."""
    source = resolve("llama-3.2-1b")
    (found,) = combinations(Options(), [source], {"torch": EngineInfo("1.0", "build")})
    return replace(found, rates=Rates(2.4716e9, 1e15))


def test_what_takes_too_long_is_passed_over_and_the_rest_is_not(work: Work) -> None:
    # One launch of one repetition, with its warm-up: 2 · 128 s, 2 · 1024 s, 2 · 16 s, and some 10 s of loading.
    within, over = Budget(400, 1, 1).take(work, CASES)
    assert within == (CASES[0], CASES[2])
    ((case, reason),) = over.items()
    assert case == CASES[1]
    # 2048 s and what the KV cache adds; 400 - 256 - 10 s are left.
    assert re.fullmatch(r"about 3[45] min of measuring, and --max-time leaves 2 min for it", reason)


def test_one_budget_serves_all(work: Work) -> None:
    budget = Budget(400, 1, 1)
    assert budget.take(work, CASES[:1])[0] == CASES[:1]
    assert budget.take(work, CASES[:1])[0] == ()


@given(st.floats(1, 1e6), st.integers(1, 5), st.integers(1, 5))
def test_every_case_is_taken_or_told_of(seconds: float, launches: int, repetitions: int) -> None:
    source = resolve("gpt2-mini")
    (work,) = combinations(Options(), [source], {"torch": EngineInfo("1.0", "build")})
    work = replace(work, rates=Rates(1e9, 1e12))
    within, over = Budget(seconds, launches, repetitions).take(work, CASES)
    assert sorted((*within, *over)) == sorted(CASES)
    everything, nothing = Budget(None, launches, repetitions).take(work, CASES)
    assert (everything, nothing) == (CASES, {})


@pytest.mark.parametrize(("seconds", "said"), [(40.4, "40 s"), (119, "119 s"), (720, "12 min"), (12600, "3.5 h")])
def test_durations_are_for_people(seconds: float, said: str) -> None:
    assert duration(seconds) == said
