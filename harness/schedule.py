"""How often everything runs: launches, repetitions, and a shorter generation where the machine is slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.options import ANCHOR_GEN, Options
from harness.workload import Case, grid

if TYPE_CHECKING:
    from harness.work import Work

_MANY = (3, 3)  # launches × repetitions, where loading is cheap beside measuring
_FEW = (1, 5)  # where it is not
_LEAST = (1, 3)
_SHORT_GEN = 32
_DEFAULT_RUN_S = 180.0  # leaves the run without flags within four minutes, synthesis included


@dataclass(frozen=True)
class Schedule:
    """How much of the work is done."""

    cases: tuple[Case, ...]
    launches: int
    repetitions: int
    note: str | None = None


def seconds(works: list[Work], cases: tuple[Case, ...], launches: int, repetitions: int) -> float:
    """Estimated time of all launches, without preparing the models."""
    counts = dict.fromkeys(cases, repetitions)
    return launches * sum(work.estimate(cases).launch_s(counts) for work in works)


def schedule(options: Options, works: list[Work]) -> Schedule:
    """Choose what the user left open."""
    cases = _cases(options, ANCHOR_GEN)
    launches, repetitions = _many_or_few(works, cases)
    if options == Options(output=options.output, machine=options.machine, resume=options.resume):
        return _default_run(options, works, launches, repetitions)
    return Schedule(cases, options.launches or launches, options.repetitions or repetitions)


def _default_run(options: Options, works: list[Work], launches: int, repetitions: int) -> Schedule:
    """The run without flags: as much as fits its time, on the anchor case as far as the machine allows."""
    for n_gen, (some_launches, some_repetitions) in (
        (ANCHOR_GEN, (launches, repetitions)),
        (ANCHOR_GEN, _FEW),
        (ANCHOR_GEN, _LEAST),
        (_SHORT_GEN, _FEW),
        (_SHORT_GEN, _LEAST),
    ):
        cases = _cases(options, n_gen)
        if seconds(works, cases, some_launches, some_repetitions) <= _DEFAULT_RUN_S:
            break
    note = f"slow machine: -n {n_gen} in place of the anchor's -n {ANCHOR_GEN}, which takes longer"
    return Schedule(cases, some_launches, some_repetitions, note if n_gen != ANCHOR_GEN else None)


def _many_or_few(works: list[Work], cases: tuple[Case, ...]) -> tuple[int, int]:
    repetitions = _MANY[1]
    estimates = [work.estimate(cases) for work in works]
    loading = sum(each.load_s + each.probe_s for each in estimates)
    measuring = sum(repetitions * sum(each.case_s.values()) for each in estimates)
    return _MANY if loading <= measuring / 2 else _FEW


def _cases(options: Options, default_gen: int) -> tuple[Case, ...]:
    return grid(options.n_depth, options.n_prompt, options.n_gen or (default_gen,), options.batch)
