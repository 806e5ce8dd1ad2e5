"""How much is done where the user left it open, on machines of hand-made speeds."""

from dataclasses import replace

import pytest

from backends.base import EngineInfo
from harness.estimate import Rates
from harness.models.source import resolve
from harness.options import Options
from harness.schedule import cases_of, schedule, seconds
from harness.work import Work, combinations
from harness.workload import Case

ANCHOR, SHORT = Case(0, 512, 128), Case(0, 512, 32)


def _works(options: Options, bytes_s: float) -> list[Work]:
    """On a machine that is as fast at arithmetic as need be, so that the memory's bandwidth decides."""
    sources = [resolve(model) for model in options.models]
    engines = {"torch": EngineInfo("1.0", "build")}
    return [replace(work, rates=Rates(bytes_s, 1e14)) for work in combinations(options, sources, engines)]


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


@pytest.mark.parametrize(
    ("bytes_s", "case", "launches", "repetitions"),
    [
        # Llama 3.2 1B streams 2.47 GB a token: 127 steps and a prefill take 128 · 2.47 GB / bandwidth, loading 7.5 s.
        (5e11, ANCHOR, 1, 5),  # 0.8 s a repetition, so loading is dear beside measuring
        (3e10, ANCHOR, 3, 3),  # 10.7 s: 3 · (7.5 + 4 · 10.7) = 150 s
        (1.5e10, ANCHOR, 1, 5),  # 21.2 s: three launches take 280 s, one of five 137 s
        (1e10, ANCHOR, 1, 3),  # 31.8 s: five take 200 s, three 136 s
        (3e9, SHORT, 1, 5),  # 105 s: three take 430 s; 32 tokens 26.4 s, five of them 168 s
        (2e9, SHORT, 1, 3),  # 39.6 s for 32 tokens: five take 246 s, three 168 s
        (1e8, SHORT, 1, 3),  # and less than that makes no row worth having
    ],
)
def test_the_default_run_shortens_repetitions_first_and_the_generation_last(
    bytes_s: float, case: Case, launches: int, repetitions: int
) -> None:
    options = Options()
    chosen = schedule(options, _works(options, bytes_s), began_short=False)
    assert (chosen.cases, chosen.launches, chosen.repetitions) == ((case,), launches, repetitions)
    if case == SHORT:
        assert "-n 32" in chosen.note
        assert "-n 128" in chosen.note
    else:
        assert chosen.note is None


def test_the_default_run_takes_about_three_minutes_or_less() -> None:
    options = Options()
    for bytes_s in (1e12, 1e11, 3e10, 1e10, 5e9, 2e9):
        works = _works(options, bytes_s)
        chosen = schedule(options, works, began_short=False)
        assert seconds(works, chosen.cases, chosen.launches, chosen.repetitions) <= 180


def test_a_resumed_short_run_stays_short() -> None:
    options = Options(resume=True)
    chosen = schedule(options, _works(options, 5e11), began_short=True)
    assert chosen.cases == (SHORT,)
    assert "-n 32" in chosen.note


def test_what_was_asked_for_is_never_shortened() -> None:
    for asked in ({"n_gen": 128}, {"models": "llama-3.1-8b"}, {"n_depth": (0, 4096)}, {"batch": 4}, {"n_prompt": 512}):
        options = Options(**asked)
        chosen = schedule(options, _works(options, 1e8), began_short=False)
        assert chosen.cases == cases_of(options, [resolve(options.models[0])])
        assert {case.n_gen for case in chosen.cases} == {128}
        assert (chosen.launches, chosen.repetitions) == (3, 3), "loading is cheap where all is slow"
        assert chosen.note is None


def test_launches_are_many_where_loading_is_cheap() -> None:
    # 2.47 GB in 10 ms: loading takes 7.5 s, three repetitions of 1000 tokens about 18 s, of 100 about 2 s.
    for n_gen, expected in ((1000, (3, 3)), (100, (1, 5))):
        options = Options(n_gen=n_gen)
        chosen = schedule(options, _works(options, 5e11), began_short=False)
        assert (chosen.launches, chosen.repetitions) == expected


@pytest.mark.parametrize(
    ("asked", "launches", "repetitions"),
    [
        ({"repetitions": 7}, 3, 7),
        ({"launches": 2}, 2, 3),
        ({"launches": 4, "repetitions": 9}, 4, 9),
    ],
)
def test_given_numbers_win(asked: dict[str, int], launches: int, repetitions: int) -> None:
    options = Options(**asked)
    chosen = schedule(options, _works(options, 1e10), began_short=False)
    assert (chosen.cases, chosen.launches, chosen.repetitions) == ((ANCHOR,), launches, repetitions)


@pytest.mark.parametrize(
    ("options", "case"),
    [
        (Options(), Case(0, 128, 32)),  # 512 + 128 and 256 + 64 are more than 256 tokens
        (Options(n_depth=200), Case(200, 32, 8)),  # 56 tokens are left
        (Options(n_depth=254), Case(254, 1, 1)),
        (Options(n_prompt=64), Case(0, 64, 128)),  # what is asked for is checked, and refused where it is too much
        (Options(n_gen=16), Case(0, 512, 16)),
    ],
)
def test_a_small_context_gets_a_case_that_fits(options: Options, case: Case) -> None:
    assert cases_of(options, [resolve("gpt2-mini")]) == (case,)
    assert cases_of(options, [resolve("llama-3.2-1b"), resolve("gpt2-mini")]) == (case,), "one grid for all models"


def test_the_grid_is_every_combination() -> None:
    options = Options(n_prompt=(0, 8), n_gen=(4,), n_depth=(0, 16), batch=(1, 2))
    assert cases_of(options, [resolve("gpt2-mini")]) == (
        Case(0, 0, 4, 1), Case(0, 8, 4, 1), Case(16, 0, 4, 1), Case(16, 8, 4, 1),
        Case(0, 0, 4, 2), Case(0, 8, 4, 2), Case(16, 0, 4, 2), Case(16, 8, 4, 2),
    )  # fmt: skip
