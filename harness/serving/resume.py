"""What a file already holds of a plan."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from backends.openai import NAME
from harness.done import answered_for, last_run
from harness.workload import Case, cases_of_rows
from results.read import read

if TYPE_CHECKING:
    import pandas as pd

    from harness.done import Done
    from harness.serving.plan import ServingPlan

Key = tuple[str, Case]
"""A server by its name and version, and what it was asked."""


def measured(plan: ServingPlan) -> Done[Key]:
    """Find the run to resume, the last that did any of the plan, and count what it has of each server."""
    return last_run(_of_plan(plan, read(plan.output)), _keys)


def cases_done(done: Done[Key], server: str | None) -> Counter[Case]:
    """Good rows of each case on one server; None: on whichever did most of it."""
    most: Counter[Case] = Counter()
    for (name, case), n_rows in done.rows.items():
        if server in {None, name}:
            most[case] = max(most[case], n_rows)
    return most


def rows_of(plan: ServingPlan, rows: pd.DataFrame, run_id: str) -> pd.DataFrame:
    """The rows of one run that answer a plan; a case that is complete by now has no failures to answer for."""
    rows = _of_plan(plan, rows[rows["run_id"] == run_id])
    return answered_for(rows, cases_of_rows(rows), plan.repetitions)


def _keys(rows: pd.DataFrame) -> list[Key]:
    named = rows.dropna(subset=["backend_version"])
    return list(zip(named["backend_version"], cases_of_rows(named), strict=True))


def _of_plan(plan: ServingPlan, rows: pd.DataFrame) -> pd.DataFrame:
    same = (
        (rows["backend"] == NAME)
        & (rows["machine"] == plan.label)
        & (rows["model"] == plan.model)
        & (rows["seed"] == plan.seed)
    )
    rows = rows[same]
    asked = [json.loads(settings).get("asked") == plan.asked() for settings in rows["engine_settings"]]
    planned = [case in plan.cases for case in cases_of_rows(rows)]
    kept: pd.DataFrame = rows[np.array(asked, bool) & np.array(planned, bool)]
    return kept
