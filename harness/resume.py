"""What an output file already holds of a plan, and so what is missing."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from results.read import read

if TYPE_CHECKING:
    from harness.launch import Due
    from harness.models.source import Artifact
    from harness.plan import Plan
    from harness.work import Work
    from harness.workload import Case


def missing(plan: Plan, work: Work, done: Counter[str], artifact: Artifact) -> list[Due]:
    """The launches that a work still needs: for each, the repetitions of its cases.

    A launch that was cut short is finished by a new process, which is a launch of its own: rates differ between
    launches, so its rows must not pretend to be the old one's.

    Args:
        plan: what is to run.
        work: one of its works.
        done: from `measured`; empty for a run from scratch.
        artifact: the weights, whose identity must be the same.
    """
    needed: list[Due] = []
    for case in plan.cases:
        lacking = plan.launches * plan.repetitions - done[_key(plan, work, case, artifact)]
        for index, repetitions in enumerate(_split(lacking, plan.repetitions)):
            if index == len(needed):
                needed.append({})
            needed[index][case] = repetitions
    return needed


def measured(plan: Plan) -> tuple[Counter[str], int, str | None]:
    """Count the good rows of the output.

    Returns:
        key -> rows, the highest launch number, and the last row's run_id.
    """
    if not plan.output.exists():
        return Counter(), 0, None
    rows = read(plan.output)
    if rows.empty:
        return Counter(), 0, None
    good = rows[rows["status"] == "ok"]
    keys = Counter(
        json.dumps([json.loads(settings)["asked"], *rest], sort_keys=True)
        for settings, *rest in good[["engine_settings", *_KEY]].astype(object).itertuples(index=False)
    )
    return keys, int(rows["launch"].max()), str(rows["run_id"].iloc[-1])


_KEY = ["machine", "backend", "model", "weights_id", "n_depth", "n_prompt", "n_gen", "batch", "seed"]


def _key(plan: Plan, work: Work, case: Case, artifact: Artifact) -> str:
    return json.dumps(
        [
            work.settings.asked(), plan.label, work.backend, work.source.name, artifact.weights_id,
            case.n_depth, case.n_prompt, case.n_gen, case.batch, plan.seed,
        ],
        sort_keys=True,
    )  # fmt: skip


def _split(lacking: int, repetitions: int) -> list[int]:
    """The rest of a launch that was cut short first, then whole launches."""
    if lacking <= 0:
        return []
    whole, rest = divmod(lacking, repetitions)
    return ([rest] if rest else []) + [repetitions] * whole
