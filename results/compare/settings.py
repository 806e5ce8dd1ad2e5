"""What `engine_settings` holds, as columns: what was asked for, and the rest of what can move a number."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from results.errors import ResultsError

ASKED, EFFECTIVE = "asked.", "effective."
# What stands for the request in rows from elsewhere, whose engine_settings has no `asked`.
REQUEST = ["n_threads", "n_gpu_layers", "flash_attn"]


def settings_of(rows: pd.DataFrame) -> pd.DataFrame:
    """One column a setting, in the rows' order: `asked.<name>` and `effective.<name>`, as text; missing where unsaid.

    A setting in effect that is itself a list or an object (the sizes of buffers, say) is a result and left out.

    Raises:
        ResultsError: a cell is no JSON object.
    """
    cells = pd.DataFrame({"settings": rows["engine_settings"], **{name: rows[name].astype(object) for name in REQUEST}})
    number = cells.groupby(list(cells), dropna=False, sort=False).ngroup().to_numpy()
    distinct = cells.assign(number=number).drop_duplicates("number").set_index("number")
    columns = pd.DataFrame([_columns(row) for row in distinct.to_dict("records")], distinct.index, dtype=object)
    return columns.loc[number].set_axis(rows.index)


def asked_text(settings: pd.Series[str]) -> pd.Series[str]:
    """Of `engine_settings` only what was asked for, as JSON text; missing where there are none.

    Raises:
        ResultsError: a cell is no JSON object.
    """
    told = {cell: json.dumps(_object(cell).get("asked"), sort_keys=True) for cell in settings.dropna().unique()}
    return settings.map(told)


def asked_names(table: pd.DataFrame) -> list[str]:
    """The columns of a table that hold what was asked for."""
    return [name for name in map(str, table) if name.startswith(ASKED)]


def _columns(cells: dict[Any, Any]) -> dict[str, str]:
    settings = cells["settings"]
    told = {} if pd.isna(settings) else _object(settings)
    asked = told.pop("asked", None)
    if not isinstance(asked, dict):
        asked = {name: cells[name] for name in REQUEST if not pd.isna(cells[name])}
    effective = {name: value for name, value in told.items() if not isinstance(value, dict | list)}
    return {ASKED + name: _text(value) for name, value in asked.items()} | {
        EFFECTIVE + name: _text(value) for name, value in effective.items()
    }


def _object(cell: str) -> dict[str, Any]:
    try:
        told = json.loads(cell)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise ResultsError(f"engine_settings: a JSON object expected, not {cell[:60]}")
    return told


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
