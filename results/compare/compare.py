"""Two or more sets of rows, compared: pairs with their verdicts, and what was left out, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from results.compare.engines import KV, alike, with_format
from results.compare.left_out import failures, listed, name_failed, refusals
from results.compare.lines import ENGINE, FACTS, MODEL, RUNNER, WORK, judged, lines_of
from results.compare.pairing import pair
from results.compare.settings import ASKED, EFFECTIVE, asked_names
from results.compare.side_by_side import in_units, side_by_side
from results.compare.verdicts import VERDICTS, judge
from results.schema import CASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.compare.sides import Side

# What follows from the field that is compared by.
_FOLLOWS = {
    "weight_format": ["weights_id", f"{ASKED}weights"],
    "model": ["architecture", "weights_id", "tokens_sha256"],
}


@dataclass(frozen=True)
class Comparison:
    """What came out.

    Attributes:
        metric: one of `results.compare.lines.METRICS`.
        min_effect: the smallest relative difference worth a verdict.
        sides: the names, the base first.
        pairs: one row a pair. The columns of `MODEL` and `CASE`, the base's; `differs`, what ran them that is not the
            same, in words; `base`, `new`: the metric, geometric means of the launches' medians; the columns of
            `results.compare.verdicts.judge`; for each side, `base_` or `new_` before: `side`, the columns of `ENGINE`
            and `WEIGHTS`, `launches`, `repetitions`, `cv_launches_pct`, `cv_within_pct` (coefficients of variation),
            `trend_pct`, the change of speed from one repetition to the next, with `trend_low_pct` and
            `trend_high_pct`, and `outliers`.
        left_out: what is in no pair: `side`, its name; `against`, the side that has no such line, empty for any;
            the columns of `ENGINE`, `MODEL` and `CASE`; `why`, and `reason`, the same without its values.
        means: for each other side and pair of engines: `cases`, the geometric mean of their ratios, `ratio`, with the
            `least` and the `most` of them, and how many have each verdict.
    """

    metric: str
    min_effect: float
    sides: tuple[str, ...]
    pairs: pd.DataFrame
    left_out: pd.DataFrame
    means: pd.DataFrame


def compare(
    sides: Sequence[Side], *, metric: str = "decode_tok_s", min_effect: float = 0.02, by: Sequence[str] = ()
) -> Comparison:
    """Compare the first side with each other one.

    Args:
        sides: two or more.
        metric: one of `results.compare.lines.METRICS`.
        min_effect: the smallest relative difference worth a verdict, from 0 to below 1.
        by: the columns that tell the sides apart: of the work, these may differ; by backend, so may what
            `results.compare.engines` takes for alike.

    Raises:
        ResultsError: no row has the metric, or a cell is not what it should be.
    """
    follow = {name for one in by for name in _FOLLOWS.get(one, ())}
    work = [field for field in WORK if field not in by and field not in follow]
    rows = judged(sides)
    names = [side.name for side in sides]
    failed = failures(rows)
    lines = lines_of(rows[rows["status"] == "ok"], metric)
    runner = [*RUNNER, *asked_names(lines)]
    effective = [name for name in map(str, lines) if name.startswith(EFFECTIVE)]
    named = dict.fromkeys([*(name for name in by if name in lines), *runner, "weight_format", *KV, *FACTS, *effective])
    shown = [name for name in named if name not in follow]
    across = "backend" in by

    left_out = [listed(failed, names), listed(refusals(lines), names)]
    pairs = []
    for other in range(1, len(sides)):
        met, met_failed = (
            table[table["side"].isin((0, other))].assign(side=lambda one: (one["side"] != 0).astype(int))
            for table in (lines, failed)
        )
        met = met.reset_index(drop=True)
        usable = met["refused"].isna().to_numpy()
        found, why = pair(alike(met) if across else met, usable, work, with_format(runner) if across else runner)
        pairs.append(side_by_side(met, found, shown, (names[0], names[other])))
        alone = name_failed(met.loc[why.index].join(why), met_failed)
        against = np.where(alone["side"] == 0, names[other], names[0])
        left_out.append(listed(alone, (names[0], names[other])).assign(against=against))

    table = pd.concat(pairs, ignore_index=True)
    table = in_units(table, metric).join(judge(table, min_effect))
    table = table.sort_values([*MODEL, *CASE], kind="stable", ignore_index=True)
    return Comparison(metric, min_effect, tuple(names), table, pd.concat(left_out, ignore_index=True), _means(table))


def _means(pairs: pd.DataFrame) -> pd.DataFrame:
    """The geometric mean over the cases of each pair of engines."""
    keys = ["base_side", "new_side", *(f"{side}_{name}" for side in ("base", "new") for name in ENGINE)]
    given = pairs.assign(log=np.log(pairs["ratio"]), **{each: pairs["verdict"] == each for each in VERDICTS})
    groups = given.groupby(keys, sort=False, dropna=False)
    means = groups.agg(cases=("ratio", "size"), ratio=("log", "mean"), least=("ratio", "min"), most=("ratio", "max"))
    means["ratio"] = np.exp(means["ratio"])
    return means.join(groups[list(VERDICTS)].sum()).reset_index()
