"""What is set beside what: two files, or the values of a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from results.compare.settings import ASKED, asked_names, settings_of
from results.errors import ResultsError
from results.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROUPS = ("machine", "engine", "model")
BY = (
    *("run_id", "kv_cache"),
    *(column.name for column in COLUMNS if column.group in _GROUPS and column.kind != "json"),
)


@dataclass(frozen=True)
class Side:
    """Rows with a name for people: a file's, or a column's value."""

    name: str
    rows: pd.DataFrame


def sides_by(rows: pd.DataFrame, by: Sequence[str], base: str | None = None) -> tuple[list[Side], pd.DataFrame]:
    """Split rows by the values of a column, or of several together.

    Args:
        rows: as `results.read.read` gives them.
        by: columns of `BY`, or names of settings that were asked for.
        base: the value that comes first; else the first that is met. Values of several columns are joined by a comma.

    Returns:
        One side a value, the base first, then in the order met; and the rows in which a cell is empty.

    Raises:
        ResultsError: no such column or value, or fewer than two values.
    """
    settings = settings_of(rows)
    columns = []
    for name in by:
        if name not in BY and ASKED + name not in settings:
            known = ", ".join(sorted({*BY, *(column.removeprefix(ASKED) for column in asked_names(settings))}))
            raise ResultsError(f"--by {name}: nothing to compare by; one of {known}")
        columns.append(rows[name] if name in BY else settings[ASKED + name])
    cells = pd.concat(columns, axis=1)
    told = cells.notna().all(axis=1)
    value = cells[told].iloc[:, 0].astype(str)
    for i in range(1, len(columns)):
        value = value + "," + cells[told].iloc[:, i].astype(str)
    values = list(dict.fromkeys(value))
    what = f"--by {','.join(by)}"
    if len(values) < 2:
        raise ResultsError(f"{what}: two values are needed, and there is {', '.join(values) or 'none'}")
    if base is not None:
        if base not in values:
            raise ResultsError(f"{what} --base {base}: no such value; one of {', '.join(values)}")
        values = [base, *(value for value in values if value != base)]
    told_rows = rows[told]
    return [Side(one, told_rows[value == one]) for one in values], rows[~told]
