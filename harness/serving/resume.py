"""What a file already holds of a plan."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from backends.openai import NAME
from harness.workload import cases_of_rows
from results.read import read

if TYPE_CHECKING:
    import pandas as pd

    from harness.serving.plan import ServingPlan
    from harness.workload import Case


@dataclass(frozen=True)
class Done:
    """An earlier part of a run.

    Attributes:
        run_id: None: there is none.
        last_launch: the highest number of a call of it.
        rows: ok ones of each case, by the server's name and version.
    """

    run_id: str | None = None
    last_launch: int = 0
    rows: dict[str, Counter[Case]] = field(default_factory=dict)

    def of(self, server: str | None) -> Counter[Case]:
        """Those of one server; None: of whichever did most of each case."""
        most: Counter[Case] = Counter()
        for counts in self.rows.values():
            most |= counts
        return most if server is None else self.rows.get(server, Counter())


NOTHING = Done()


def measured(plan: ServingPlan) -> Done:
    """Find the run to resume, the last that did any of the plan, and count what it has."""
    if not plan.output.exists():
        return NOTHING
    rows = _of_plan(plan, read(plan.output))
    if rows.empty:
        return NOTHING
    run_id = str(rows["run_id"].iloc[-1])
    rows = rows[rows["run_id"] == run_id]
    good = rows[rows["status"] == "ok"]
    counts = {str(server): Counter(cases_of_rows(its)) for server, its in good.groupby("backend_version")}
    return Done(run_id, int(rows["launch"].max()), counts)


def rows_of(plan: ServingPlan, rows: pd.DataFrame, run_id: str) -> pd.DataFrame:
    """The rows of one run that answer a plan; a case that is complete by now has no failures to answer for."""
    rows = _of_plan(plan, rows[rows["run_id"] == run_id])
    good = Counter(cases_of_rows(rows[rows["status"] == "ok"]))
    complete = np.array([good[case] >= plan.repetitions for case in cases_of_rows(rows)], bool)
    return rows[~complete | (rows["status"] == "ok")].reset_index(drop=True)


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
