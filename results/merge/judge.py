"""What a merge adds to rows once all of them are known: labels, reasons against comparing, verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from results.amounts import counted
from results.arrow import TEXT
from results.merge.conflicts import RULES
from results.merge.machines import ambiguous
from results.verify import VERDICT, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from results.merge.conflicts import Conflict
    from results.merge.facts import Indices
    from results.merge.gather import Flags, Rows

_MOST_FILES = 3  # that a message names
_CLASH = "another row has its row_id and says something else"


class _Column:
    """A text for each distinct fact, and so for each row that states it."""

    def __init__(self, texts: pd.Series[str], places: list[Indices]) -> None:
        codes, distinct = pd.factorize(texts.to_numpy(object))
        self._codes = pa.array(codes, pa.int32(), mask=codes < 0)
        self._distinct = pa.array(distinct, pa.string())
        self._places = places

    def of_table(self, number: int) -> pa.Array:
        """The texts of a table's rows."""
        return pa.DictionaryArray.from_arrays(self._codes.take(pa.array(self._places[number])), self._distinct)


@dataclass(frozen=True)
class Judgement:
    """What to write into rows, and what to tell of it.

    Attributes:
        conflicts: why rows are not comparable, with the files that disagree.
        renamed: the labels of the machines that had one label, by that label.
    """

    conflicts: list[str]
    renamed: dict[str, list[str]]
    _filled: dict[str, _Column]
    _reasons: list[_Column]
    _duplicate: list[Flags]

    def apply(self, table: pa.Table, number: int) -> pa.Table:
        """A table, by its number, without exact duplicates and with all that is computed in a merge."""
        filled = {name: column.of_table(number) for name, column in self._filled.items()}
        why = [column.of_table(number) for column in self._reasons]
        filled["comparable_why"] = _joined(why, len(table))
        marked = filled["comparable_why"].is_null().to_numpy(zero_copy_only=False).astype(np.int32)
        filled["comparable"] = pa.DictionaryArray.from_arrays(pa.array(marked, mask=marked == 1), ["no"])
        for name, column in filled.items():
            table = table.set_column(table.column_names.index(name), pa.field(name, TEXT), column)
        return table.filter(pa.array(~self._duplicate[number]))


def judge(rows: Rows, paths: Sequence[Path], *, suffix: bool) -> Judgement:
    """Ask of all rows together what a merge must.

    Args:
        rows: all of them.
        paths: the files that they are from.
        suffix: give each machine a label of its own where one label is several machines' and runs tell them apart.
    """
    facts, places = rows.machines.gather()
    taken = set(facts["machine"])
    names: dict[tuple[str, str | None], str] = {}
    conflicts, renamed = [], {}
    reasons = pd.Series(None, facts.index, dtype=object)
    for label in ambiguous(facts):
        if suffix and label.is_separable:
            renamed[label.name] = label.new_names(taken)
            taken.update(renamed[label.name])
            for name, runs in zip(renamed[label.name], label.runs, strict=True):
                names |= {(label.name, run): name for run in runs}
        else:
            advice = "--suffix tells them apart" if label.is_separable else "give each a --machine of its own"
            conflicts.append(f"{_told(label.conflict, paths)}; {advice}")
            reasons[label.conflict.rows] = label.conflict.reason
    why = [_Column(reasons, places)] if reasons.notna().any() else []
    filled = {"machine": _Column(_renamed(facts, names), places)} if names else {}

    for rule, ruled in zip(RULES, rows.ruled, strict=True):
        facts, places = ruled.gather()
        reasons = pd.Series(None, facts.index, dtype=object)
        for conflict in rule.conflicts(facts):
            conflicts.append(_told(conflict, paths))
            reasons[conflict.rows] = conflict.reason
        if reasons.notna().any():
            why.append(_Column(reasons, places))

    duplicate, clashing = rows.repeated()
    if n_clashing := sum(int((c & ~d).sum()) for c, d in zip(clashing, duplicate, strict=True)):
        clash = counted(n_clashing, "row shares", "rows share")
        conflicts.append(f"{clash} a row_id with a row that says something else")
        why.append(_Column(pd.Series([None, _CLASH], dtype=object), [flags.astype(np.intp) for flags in clashing]))

    facts, places = rows.probes.gather()
    judged = verify(facts.assign(machine=_renamed(facts, names)))
    filled |= {name: _Column(judged[name], places) for name in VERDICT}
    return Judgement(conflicts, renamed, filled, why, duplicate)


def named(paths: Iterable[Path]) -> str:
    """Some files, for a message."""
    all_names = [str(path) for path in paths]
    more = len(all_names) - _MOST_FILES
    return ", ".join(all_names[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")


def _told(conflict: Conflict, paths: Sequence[Path]) -> str:
    return f"{conflict.reason} (in {named(dict.fromkeys(paths[number] for number in conflict.files))})"


def _renamed(facts: pd.DataFrame, names: dict[tuple[str, str | None], str]) -> pd.Series[str]:
    if not names:
        return facts["machine"]
    runs = facts["run_id"].astype(object).where(facts["run_id"].notna(), None)
    pairs = zip(facts["machine"], runs, strict=True)
    return pd.Series([names.get(pair, pair[0]) for pair in pairs], facts.index)


def _joined(texts: list[pa.Array], length: int) -> pa.Array:
    """Texts of several columns as one; null where all are."""
    if len(texts) < 2:
        return texts[0] if texts else pa.nulls(length, TEXT)
    rows = zip(*(text.to_pylist() for text in texts), strict=True)
    return pa.array(["; ".join(filter(None, row)) or None for row in rows], pa.string()).dictionary_encode()
