"""Plans and runs the experiments; everything that can be refused is refused before the first of them runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from harness.errors import UserError
from harness.experiments.kv_cache import EXPERIMENTS
from harness.experiments.kv_cache.asked import Asked, CannotAnswerError
from harness.plan import Seen, make_plan
from harness.runner import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backends.base import EngineInfo
    from harness.options import Options
    from harness.plan import Plan


@dataclass(frozen=True)
class Experiment:
    """One question, ready to run.

    Attributes:
        name: of `EXPERIMENTS`.
        plans: the runs that answer it, in order.
    """

    name: str
    plans: tuple[Plan, ...]

    def run(self) -> pd.DataFrame:
        """All rows of its runs, as `harness.run` returns them."""
        return pd.concat([run(plan) for plan in self.plans], ignore_index=True)


def prepare(
    options: Options, n_prompt: int, n_gen: int, names: Sequence[str], prefixes: tuple[int, ...] | None
) -> list[Experiment]:
    """Plan experiments; one of several that no engine can answer is left out.

    Args:
        options: of a run; an experiment chooses the cases, and the formats or models that it varies.
        n_prompt: tokens of the text before the first that comes out.
        n_gen: tokens that come out.
        names: of `EXPERIMENTS`.
        prefixes: lengths of the prefix that "reuse" keeps; None: parts of the text.

    Raises:
        UserError: something in the request cannot be done on this machine.
    """
    whole = make_plan(replace(options, n_prompt=(n_prompt,), n_gen=(n_gen,)))
    engines = {work.backend: work.engine for work in whole.works}
    asked = Asked(replace(options, backends=tuple(engines)), engines, n_prompt, n_gen, prefixes)
    prepared = []
    for name in names:
        try:
            plans = tuple(_plan(each, whole, engines) for each in EXPERIMENTS[name](asked))
        except CannotAnswerError as error:
            asked.notes.append(str(error))
            continue
        if obstacle := next((plan.obstacle for plan in plans if plan.obstacle), None):
            raise UserError(f"--experiment {name}: {obstacle}")
        prepared.append(Experiment(name, plans))
    if not prepared:
        raise UserError("; ".join(asked.notes))
    return _noted(prepared, (*whole.notes, *asked.notes))


def _plan(options: Options, whole: Plan, engines: Mapping[str, EngineInfo]) -> Plan:
    """One run, in those of the engines that it names."""
    return make_plan(options, Seen(whole.machine, {name: engines[name] for name in options.backends or engines}))


def _noted(prepared: list[Experiment], notes: tuple[str, ...]) -> list[Experiment]:
    """The same, with notes that are told before the first of them runs."""
    first = prepared[0]
    begin = replace(first.plans[0], notes=(*notes, *first.plans[0].notes))
    return [replace(first, plans=(begin, *first.plans[1:])), *prepared[1:]]
