"""When the experts of a case are counted, and why not."""

from pathlib import Path

import numpy as np
import pytest

from backends.base import LoadRequest
from backends.simulated import Options, SimulatedSession
from harness import experts
from harness.experts import ExpertsHit, count
from harness.workload import Case

CASE = Case(0, 8, 9)


def _count(case: Case, *, is_mixture: bool = True) -> ExpertsHit:
    session = SimulatedSession(LoadRequest(Path(), None), Options(ttft_s=0, itl_s=0))
    tokens = np.zeros((case.batch, case.context_tokens), np.int32)
    return count(session, case, tokens, is_mixture=is_mixture)


@pytest.mark.parametrize(
    ("case", "is_mixture", "why"),
    [
        (CASE, False, "the model has no experts"),
        (Case(0, 8, 0), True, "no decode step was timed"),
        (Case(0, 8, 1), True, "no decode step was timed"),
        (Case(0, 8, 9, kv_cache="off"), True, "without a KV cache each step reads the experts of its whole prefix"),
        (CASE, True, "this engine does not tell which experts it reads"),
    ],
)
def test_where_there_is_nothing_to_count_the_reason_is_told(case: Case, is_mixture: bool, why: str) -> None:
    assert _count(case, is_mixture=is_mixture) == ExpertsHit(None, why)


def test_a_deep_context_on_a_slow_machine_is_not_filled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "BUDGET_S", 0.0)
    assert "another prefill of 2048 tokens would take about" in str(_count(Case(2048, 0, 4)).missing)
    assert "does not tell" in str(_count(Case(1024, 0, 4)).missing)  # short enough in any case


def test_what_an_engine_throws_costs_the_count_alone() -> None:
    session = SimulatedSession(LoadRequest(Path(), None), Options(ttft_s=0, fault="oom", fault_at="prefill"))
    tokens = np.zeros((1, 2100), np.int32)
    found = count(session, Case(2048, 0, 4), tokens, is_mixture=True)
    assert found == ExpertsHit(None, "counting them failed: out of simulated memory")
