"""Rows that failed, that are left out of every rate, or that deserve a second look: each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from reports.case import case_name
from reports.numbers import EMPTY
from reports.page.parts import Column, Table
from reports.page.texts import name
from reports.skipped import skipped_rows
from reports.summary import SUBJECT, plain
from results.schema import CASE

if TYPE_CHECKING:
    from reports.gather import Gathered
    from reports.words import Words

_MOST_CASES = 6
_KEY = ["kind", "machine", "backend", "model", "weight_format", "reason"]


def find_doubts(gathered: Gathered) -> pd.DataFrame:
    """One line for each kind of doubt, engine, model and reason.

    Returns:
        `kind`, which names a text among the words; `machine`, `backend`, `model`, `weight_format`; `reason`, empty
        where none was given; `cases`, the distinct ones as text; `n_rows`. Empty cells are empty texts.
    """
    own = gathered.own
    ok = own[own["status"] == "ok"]
    parts = [
        _of(own[own["status"] == "failed"], "failed", "error"),
        _of(skipped_rows(own), "skipped", "error"),
        _of(gathered.faulty, "faulty", "fault"),
        _of(gathered.incomparable, "incomparable", "comparable_why"),
        _of(ok[ok["verified"] == "no"], "disagrees", "verified_why"),
        _of(_worst(ok[ok["ceiling_warning"].notna()]), "above", "ceiling_warning"),
        _of(ok[ok["throttled"].notna() & (ok["throttled"] != "no")], "throttled", "throttled"),
        _of(ok[ok["verified"].isna()], "unverified", "verified_why"),
    ]
    return pd.concat(parts, ignore_index=True)


def doubts_table(doubts: pd.DataFrame, words: Words) -> Table | None:
    """All of `find_doubts`; None where there are none."""
    if doubts.empty:
        return None
    rows = [
        (
            words[f"doubts.{line['kind']}"],
            *(name(line[column] or EMPTY) for column in SUBJECT),
            _cases(line["cases"], words),
            str(line["n_rows"]),
            line["reason"] or words["doubts.no_reason"],
        )
        for line in doubts.to_dict("records")
    ]
    keys = ("kind", "machine", "engine", "model", "format", "cases", "rows", "reason")
    columns = tuple(Column(words[f"table.{key}"], number=key == "rows") for key in keys)
    return Table("doubts-table", words["doubts.caption"], columns, rows)


def warnings(doubts: pd.DataFrame, words: Words) -> list[str]:
    """What is doubtful of one machine, a sentence for each kind and reason."""
    counts = doubts.groupby(["kind", "reason"], sort=False)["n_rows"].sum().reset_index()
    return [
        words["doubts.warning"].format(
            kind=words[f"doubts.{line['kind']}"], n=line["n_rows"], reason=line["reason"] or words["doubts.no_reason"]
        )
        for line in counts.to_dict("records")
    ]


def _worst(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows above their ceiling, each by a share of its own, with the reason of their model and engine's furthest."""
    furthest = rows.assign(share=rows[["mbu", "mfu"]].max(axis=1)).sort_values("share", ascending=False, kind="stable")
    reasons = furthest.groupby(SUBJECT, dropna=False, sort=False)["ceiling_warning"].transform("first")
    return rows.assign(ceiling_warning=reasons)


def _of(rows: pd.DataFrame, kind: str, why: str) -> pd.DataFrame:
    """The rows of one kind of doubt, those with equal reasons together."""
    told = rows[[*SUBJECT, *CASE]].assign(kind=kind, reason=rows[why])
    told[_KEY] = told[_KEY].astype("str").fillna("")
    counts = told.groupby([*_KEY, *CASE], dropna=False, sort=False).size().reset_index(name="n_rows")
    counts["cases"] = [_case(plain(case)) for case in counts[CASE].to_dict("records")]
    lines = counts.groupby(_KEY, sort=False).agg(cases=("cases", list), n_rows=("n_rows", "sum"))
    return lines.reset_index()


def _case(case: dict[str, Any]) -> str:
    if any(value is None for column, value in case.items() if column != "prompt_file"):  # a faulty row
        return EMPTY
    return case_name(case)


def _cases(cases: list[str], words: Words) -> str:
    more = len(cases) - _MOST_CASES
    return ", ".join(cases[:_MOST_CASES]) + (f", {words['doubts.more'].format(n=more)}" if more > 0 else "")
