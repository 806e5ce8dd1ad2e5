"""The time left, on a clock whose hand the test moves."""

from types import SimpleNamespace

import pytest

from backends.base import EngineInfo
from harness.clock import Clock
from harness.estimate import Rates
from harness.models.source import resolve
from harness.options import Options
from harness.work import Work, combinations
from harness.workload import Case

CASES = (Case(0, 64, 32), Case(64, 64, 32))
FIRST, SECOND = CASES


class Hand:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand()
    monkeypatch.setattr("harness.clock.time", SimpleNamespace(monotonic=hand.monotonic))
    return hand


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> tuple[Work, Work]:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e8, 1e10))
    engines = dict.fromkeys(("torch", "llama.cpp"), EngineInfo("1.0", "CPU"))
    torch, llama = combinations(Options(n_threads=1), [resolve("gpt2-mini")], engines)
    return torch, llama


def _pass(clock: Clock, hand: Hand, work: Work, factor: float) -> list[float]:
    """A launch of three repetitions a case, `factor` times as slow as estimated: the time left after each of them."""
    parts = work.estimate(CASES)
    left_s = []

    def take(seconds: float) -> None:
        hand.now += factor * seconds

    take(parts.load_s + parts.probe_s)
    clock.loaded(work)
    for case in CASES:
        take(parts.fill_s[case] + parts.case_s[case])
        clock.warm(work, case)
        for _ in range(3):
            take(parts.case_s[case])
            clock.repetition(work, case)
            left_s.append(clock.left_s)
    return left_s


def test_before_anything_ran_the_estimate_is_all_there_is(hand: Hand, works: tuple[Work, Work]) -> None:
    due = dict.fromkeys(CASES, 3)
    clock = Clock([(works[0], due), (works[1], due), (works[0], {SECOND: 1})], CASES)
    first, second = (work.estimate(CASES) for work in works)
    assert clock.left_s == pytest.approx(first.launch_s(due) + second.launch_s(due) + first.launch_s({SECOND: 1}))
    hand.now += 7
    assert clock.elapsed_s == 7


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
def test_time_left_shrinks_to_nothing_whatever_the_machines_speed(
    hand: Hand, works: tuple[Work, Work], factor: float
) -> None:
    clock = Clock([(works[0], dict.fromkeys(CASES, 3))], CASES)
    left_s = _pass(clock, hand, works[0], factor)
    assert left_s == sorted(left_s, reverse=True)
    assert left_s[-1] == pytest.approx(0, abs=1e-9)
    last_repetition_s = factor * works[0].estimate(CASES).case_s[SECOND]
    assert left_s[-2] == pytest.approx(last_repetition_s), "as long as it really takes"


def test_a_work_is_scaled_by_its_own_parts_only(hand: Hand, works: tuple[Work, Work]) -> None:
    slow, untouched = works
    due = dict.fromkeys(CASES, 3)
    clock = Clock([(slow, due), (untouched, due), (slow, due)], CASES)
    _pass(clock, hand, slow, 2.0)
    expected = 2 * slow.estimate(CASES).launch_s(due) + untouched.estimate(CASES).launch_s(due)
    assert clock.left_s == pytest.approx(expected)


@pytest.mark.usefixtures("hand")
def test_work_that_is_given_up_is_no_longer_ahead(works: tuple[Work, Work]) -> None:
    clock = Clock([(works[0], dict.fromkeys(CASES, 3))], CASES)
    before = clock.left_s
    clock.give_up(works[0], FIRST, 2, warm=True)
    assert clock.left_s == pytest.approx(before - 2 * works[0].estimate(CASES).case_s[FIRST])


@pytest.mark.usefixtures("hand")
def test_nothing_is_ahead_of_a_work_that_failed_in_its_first_warm_up(works: tuple[Work, Work]) -> None:
    due = {FIRST: 3}
    clock = Clock([(works[0], due), (works[0], due)], CASES)
    clock.loaded(works[0])
    clock.give_up(works[0], FIRST, 3, warm=False)
    clock.give_up(works[0], FIRST, 3, warm=False)  # the second launch, which is not begun
    clock.skip(works[0])
    assert clock.left_s == pytest.approx(0, abs=1e-9)
