"""Which rates to show first: those of the workloads that most engines did, like beside like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.case import plainest_first
from results.schema import CASE

if TYPE_CHECKING:
    import pandas as pd

    from reports.gather import Gathered
    from reports.words import Words


def headlines(lines: pd.DataFrame) -> list[pd.DataFrame]:
    """The lines to show first, in groups of one model, weight format and case each, fastest line first.

    For each model and format it is the case that most engines did, and further cases for the engines that did not do
    that one; of equally many the plainest (see `reports.case`). Groups with more engines come first, then the slower
    ones: a large model tells more of a memory than a small one.

    Args:
        lines: as `reports.summary.summarise` gives them; those without a decode rate or a KV cache are passed over.
    """
    rated = lines[(lines["decode_tok_s"] > 0) & (lines["kv_cache"] == "on")]
    rated = rated.assign(engine=rated["machine"] + "\n" + rated["backend"] + "\n" + rated["settings"])
    groups = []
    for _, alike in rated.groupby(["model", "weight_format"], dropna=False, sort=False):
        rest = alike
        while len(rest):
            chosen = rest[_is_case(rest, _widest(rest))]
            groups.append(chosen.sort_values("decode_tok_s", ascending=False, kind="stable"))
            rest = rest[~rest["engine"].isin(chosen["engine"])]
    groups.sort(key=lambda group: (-len(group), group["decode_tok_s"].max()))
    return [group.drop(columns="engine") for group in groups]


def no_headline(gathered: Gathered, lines: pd.DataFrame, words: Words) -> str:
    """Why `headlines` has nothing to show.

    Args:
        gathered: the rows.
        lines: `summarise` of those that count.
        words: of the language to speak.
    """
    n_own, n_published = len(gathered.own), len(gathered.published)
    n_rows = n_own + n_published + len(gathered.incomparable) + len(gathered.faulty)
    if n_rows == 0:
        return words["answer.empty"]
    if n_rows == n_published:
        return words["answer.only_published"].format(n=n_rows)
    if n_own == 0:
        return words["answer.none_counts"].format(n=n_rows)
    outcomes = set(gathered.own["status"])
    if "ok" not in outcomes:
        n_failed = int((gathered.own["status"] == "failed").sum())
        if n_failed:
            return words["answer.all_failed"].format(n=n_failed)
        return words["answer.all_skipped"].format(n=n_own)
    has_rate = (lines["decode_tok_s"] > 0).any()
    return words["answer.no_cached_decode" if has_rate else "answer.no_decode"]


def _is_case(lines: pd.DataFrame, case: pd.Series[Any]) -> pd.Series[bool]:
    """Which lines are of a case; empty cells are equal."""
    same = (lines[CASE] == case) | (lines[CASE].isna() & case.isna())
    return same.all(axis=1)


def _widest(lines: pd.DataFrame) -> pd.Series[Any]:
    counts = lines.groupby(CASE, dropna=False)["engine"].nunique().reset_index()
    best = plainest_first(counts).sort_values("engine", ascending=False, kind="stable")
    first: pd.Series[Any] = best[CASE].iloc[0]
    return first
