"""Rows as lines to draw: one an engine and case, from sound cells only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.summary import ENGINE, SUBJECT, asked_of, telling_settings
from results.schema import BY_NAME, CASE, PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

LAUNCH = ["run_id", "launch"]
WORK = [*SUBJECT, "asked", *ENGINE]  # whoever does the cases
_NEEDED = ["machine", "backend", "model", *(column for column in CASE if column != "prompt_file")]
_LEAST_LAUNCHES = 3
_MOST = 2.0**63


def own(rows: pd.DataFrame, kv_cache: Sequence[str] = ("on",)) -> pd.DataFrame:
    """The rows that may be set beside each other, failed ones too, with `asked` and the `context` of the first step.

    Args:
        rows: as `results.verify.verify` gives them.
        kv_cache: the ways to use the cache that are of interest.
    """
    kept = rows[(rows["provenance"] != PUBLISHED) & (rows["comparable"] != "no")].dropna(subset=_NEEDED)
    kept = kept[kept["kv_cache"].isin(kv_cache)]
    return kept.assign(asked=asked_of(kept), context=kept["n_depth"] + kept["n_prompt"])


def sound(rows: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows with these columns as floats, NaN where a cell is empty, infinite or none that the schema allows.

    Bytes may be none at all; a rate, a time or a bandwidth of zero is no measurement.
    """
    return rows.assign(**{column: _sound(rows[column].astype("float64"), column) for column in columns})


def _sound(cells: pd.Series[float], name: str) -> pd.Series[float]:
    column = BY_NAME.get(name)
    most = _MOST if column is None or column.most is None else column.most
    return cells.where(cells.between(0, most, inclusive="right" if column and column.kind == "float" else "both"))


def lines(
    rows: pd.DataFrame, by: Sequence[str], rate: str, medians: Sequence[str] = (), largest: Sequence[str] = ()
) -> pd.DataFrame:
    """One line for each group of rows that were measured alike and have the rate.

    Args:
        rows: as `own` gives them.
        by: the columns that rows of one line share.
        rate: the column whose median of launches' medians a line shows.
        medians: columns whose median it shows.
        largest: columns whose largest value it shows.

    Returns:
        `by`; `rate`, and `spread`, the standard deviation of the launches' medians where there are three or more, else
        of the repetitions, NaN for a single one; `medians`; `largest`; `refused`, whether the logits of one of the rows
        agree with no other engine's; `settings`, what was asked, or the engine's
        version, build, mode or device, where that tells a line from another. In the order of the rows.
    """
    ok = sound(rows[rows["status"] == "ok"], [rate, *medians, *largest])
    ok = ok[ok[rate] > 0]
    ok = ok.assign(line=ok.groupby(list(by), dropna=False, sort=False).ngroup())
    found = ok.drop_duplicates("line").set_index("line")[list(by)]
    grouped = ok.groupby("line")
    launches = ok.groupby(["line", *LAUNCH], dropna=False)[rate].median().groupby("line")
    enough = launches.size() >= _LEAST_LAUNCHES
    found[rate] = launches.median()
    found["spread"] = launches.std().where(enough, grouped[rate].std())
    for column in medians:
        found[column] = grouped[column].median()
    for column in largest:
        found[column] = grouped[column].max()
    found["refused"] = (ok["verified"] == "no").groupby(ok["line"]).any()
    alike = [column for column in by if column not in ("asked", *ENGINE)]
    return found.assign(settings=telling_settings(found, alike, sign=" ")).reset_index(drop=True)


def telling(found: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Those of the columns that differ between lines."""
    return [column for column in columns if found[column].nunique(dropna=False) > 1]
