"""How much is done: cases, launches and repetitions, where the user left that open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.options import ANCHOR_GEN, ANCHOR_PROMPT, Options
from harness.workload import Case, grid

if TYPE_CHECKING:
    from harness.models.source import ModelSource
    from harness.work import Work

_MANY = (3, 3)  # launches × repetitions, where loading is cheap beside measuring
_FEW = (1, 5)  # where it is not
_LEAST = (1, 3)
SHORT_GEN = 32
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


def cases_of(options: Options, sources: list[ModelSource], n_gen: int = ANCHOR_GEN) -> tuple[Case, ...]:
    """The cases or the grid that was asked for.

    Without -p and -n it is the anchor case, or half of that again and again until a small context holds it.
    """
    if options.cases is not None:
        return options.cases
    n_prompt = ANCHOR_PROMPT
    if options.n_prompt is None and options.n_gen is None:
        room = min(source.architecture.max_context or n_prompt + n_gen for source in sources) - max(options.n_depth)
        while n_prompt > 1 and n_prompt + n_gen > room:
            n_prompt, n_gen = n_prompt // 2, max(n_gen // 2, 1)
    prompts, gens = options.n_prompt or (n_prompt,), options.n_gen or (n_gen,)
    prompt_file = options.prompt.name if options.prompt else ""
    return grid(options.n_depth, prompts, gens, options.batch, options.kv_cache, prompt_file)


def schedule(options: Options, works: list[Work], *, began_short: bool) -> Schedule:
    """Choose what the user left open.

    Args:
        options: what was asked.
        works: what will run.
        began_short: the run that is resumed has the shortened generation: it must stay so.
    """
    sources = [work.source for work in works]
    cases = cases_of(options, sources)
    launches, repetitions = _many_or_few(works, cases)
    if options.launches is None and options.repetitions is None and _is_anchor(options):
        return _default_run(options, works, (launches, repetitions), began_short=began_short)
    return Schedule(cases, options.launches or launches, options.repetitions or repetitions)


def _is_anchor(options: Options) -> bool:
    """On whatever engines and device, it must not take long."""
    names = ("models", "n_prompt", "n_gen", "n_depth", "batch", "kv_cache", "cases")
    return all(getattr(options, name) == getattr(Options, name) for name in names)


def _default_run(options: Options, works: list[Work], usual: tuple[int, int], *, began_short: bool) -> Schedule:
    """As much as fits the time of a run without flags; the generation, which machines share, is shortened last."""
    sources = [work.source for work in works]
    choices = [(ANCHOR_GEN, usual), (ANCHOR_GEN, _FEW), (ANCHOR_GEN, _LEAST), (SHORT_GEN, _FEW), (SHORT_GEN, _LEAST)]
    for n_gen, (launches, repetitions) in choices[3:] if began_short else choices:
        cases = cases_of(options, sources, n_gen)
        if seconds(works, cases, launches, repetitions) <= _DEFAULT_RUN_S:
            break
    shortened = n_gen != ANCHOR_GEN
    note = f"slow machine: -n {n_gen} in place of the anchor's -n {ANCHOR_GEN}, which takes longer"
    return Schedule(cases, launches, repetitions, note if shortened else None)


def _many_or_few(works: list[Work], cases: tuple[Case, ...]) -> tuple[int, int]:
    repetitions = _MANY[1]
    estimates = [work.estimate(cases) for work in works]
    loading = sum(each.load_s + each.probe_s for each in estimates)
    measuring = sum(repetitions * sum(each.case_s.values()) for each in estimates)
    return _MANY if loading <= measuring / 2 else _FEW
