"""What is in no pair: nothing goes without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from results.compare.lines import ENGINE, MODEL
from results.schema import CASE

if TYPE_CHECKING:
    from collections.abc import Sequence

_COUNTERPART = {"failed": "its counterpart failed", "skipped": "its counterpart was skipped"}
COLUMNS = ["side", "against", *ENGINE, *MODEL, *CASE, "why", "reason"]


def listed(lines: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Lines as a list for people.

    Args:
        lines: `side`, a number; the columns of `ENGINE`, `MODEL` and `CASE`; `why`, and `reason`, the same
            without what tells one line from another.
        names: of the sides.

    Returns:
        `COLUMNS`, with the side's name, and `against` empty.
    """
    return lines.assign(side=lines["side"].map(dict(enumerate(names))), against="")[COLUMNS]


def failures(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each side, engine and case of which repetitions failed or were skipped, with `why` and `reason`."""
    failed = rows[rows["status"] != "ok"]
    groups = failed.groupby(["side", *ENGINE, *MODEL, *CASE, "status"], dropna=False, sort=False)
    cases = groups["error"].agg(["size", "first"]).reset_index()
    reason = cases["status"].astype(object) + ": " + cases["first"].astype(object).fillna("no reason was given")
    times = cases["size"].map(lambda n: f" ({n} times)" if n > 1 else "")
    return cases.assign(why=reason + times, reason=reason)


def refusals(lines: pd.DataFrame) -> pd.DataFrame:
    """The lines that must not be compared, with `why` and `reason`."""
    refused = lines.dropna(subset="refused")
    return refused.assign(why=refused["refused"], reason=refused["refused"].str.split(", ").str[0])


def name_failed(alone: pd.DataFrame, failed: pd.DataFrame) -> pd.DataFrame:
    """Lines without a partner; `why` and `reason` say so where it failed or was skipped, and is none for that."""
    side_and_case = ["side", "backend", *MODEL, *CASE]
    lost = failed[[*side_and_case, "status"]].assign(side=1 - failed["side"]).drop_duplicates(side_and_case)
    told = alone.merge(lost, how="left", on=side_and_case)["status"].map(_COUNTERPART).to_numpy(object)
    return alone.assign(**{name: alone[name].mask(pd.notna(told), told) for name in ("why", "reason")})
