"""What an output file already holds of a plan, and so what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd

from harness.done import answered_for, last_run
from results.schema import CASE

if TYPE_CHECKING:
    from collections import Counter

    from harness.done import Done
    from harness.models.artifacts import Artifact
    from harness.plan import Plan
    from harness.work import Work
    from harness.workload import Case, Due

_KEY = ["machine", "backend", "model", "weights_id", *CASE, "seed"]


def measured(plan: Plan, artifacts: dict[Work, Artifact], rows: pd.DataFrame, run_id: str | None = None) -> Done[str]:
    """Find the run to resume, and count what it has.

    Args:
        plan: what is to run.
        artifacts: of its works.
        rows: all of the output file's.
        run_id: of the only run that will do, where this plan is a part of one; None: the last that did any of it.
    """
    if run_id is not None:
        rows = rows[rows["run_id"] == run_id]
    rows = rows[_keys(rows).isin(_planned(plan, artifacts)) & (rows["suite"].fillna("") == (plan.suite or ""))]
    return last_run(rows, _keys)


def missing(plan: Plan, work: Work, done: Counter[str], artifact: Artifact) -> list[Due]:
    """The launches that a work still needs: for each, the repetitions of its cases.

    A launch that was cut short is finished by a new process, which is a launch of its own: rates differ between
    launches, so its rows must not pretend to be the old one's.

    Args:
        plan: what is to run.
        work: one of its works.
        done: good rows by key; none for a run from scratch.
        artifact: the weights, whose identity must be the same.
    """
    needed: list[Due] = []
    for case in plan.cases_of(work):
        lacking = plan.launches * plan.repetitions - done[_key(plan, work, case, artifact)]
        for index, repetitions in enumerate(_split(lacking, plan.repetitions)):
            if index == len(needed):
                needed.append({})
            needed[index][case] = repetitions
    return needed


def rows_of(plan: Plan, artifacts: dict[Work, Artifact], rows: pd.DataFrame, run_id: str) -> pd.DataFrame:
    """The rows of one run that answer a plan; a case that is complete by now has no failures to answer for."""
    rows = rows[rows["run_id"] == run_id]
    keys = _keys(rows)
    mine = keys.isin(_planned(plan, artifacts))
    return answered_for(rows[mine], keys[mine].tolist(), plan.launches * plan.repetitions)


def untouched(plan: Plan, artifacts: dict[Work, Artifact], rows: pd.DataFrame, run_id: str) -> list[tuple[Work, Case]]:
    """What a run has no row of at all, not even of a failure."""
    found = set(_keys(rows[rows["run_id"] == run_id]))
    each = [(work, case) for work in plan.works for case in plan.cases_of(work)]
    return [(work, case) for work, case in each if _key(plan, work, case, artifacts[work]) not in found]


def _keys(rows: pd.DataFrame) -> pd.Series[str]:
    """What each row was asked to measure, comparable with `_key`."""
    told = rows[["engine_settings", *_KEY]].astype(object)
    cells = told.assign(prompt_file=told["prompt_file"].fillna("")).itertuples(index=False)
    keys = [json.dumps([_asked(settings), *rest], sort_keys=True) for settings, *rest in cells]
    return pd.Series(keys, index=rows.index, dtype=object)


def _asked(engine_settings: object) -> object:
    """Of a cell, which may be empty or lack it in rows that somebody made otherwise."""
    return json.loads(engine_settings).get("asked") if isinstance(engine_settings, str) else None


def _planned(plan: Plan, artifacts: dict[Work, Artifact]) -> set[str]:
    return {_key(plan, work, case, artifacts[work]) for work in plan.works for case in plan.cases_of(work)}


def _key(plan: Plan, work: Work, case: Case, artifact: Artifact) -> str:
    return json.dumps(
        [
            work.settings.asked(), plan.label, work.backend, work.source.name, artifact.weights_id,
            *(getattr(case, column) for column in CASE), plan.seed,
        ],
        sort_keys=True,
    )  # fmt: skip


def _split(lacking: int, repetitions: int) -> list[int]:
    """The rest of a launch that was cut short first, then whole launches."""
    if lacking <= 0:
        return []
    whole, rest = divmod(lacking, repetitions)
    return ([rest] if rest else []) + [repetitions] * whole
