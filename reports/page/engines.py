"""The engines of a machine: versions, what was asked of them, and what was in effect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from reports.numbers import EMPTY
from reports.page.parts import Column, Table
from reports.page.texts import name
from reports.summary import asked_of, plain

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

_COLUMNS = {
    "engine_build": "build",
    "engine_mode": "mode",
    "device": "device",
    "n_threads": "threads",
    "flash_attn": "attention",
}
_KEY = ["backend", "backend_version", *_COLUMNS, "gpu_layers_effective", "kv_k_format", "kv_v_format", "asked"]
_MOST_VALUES = 4


def engines_table(rows: pd.DataFrame, machine_id: str, words: Words) -> Table:
    """One line for each engine, version and set of settings that one machine ran.

    Args:
        rows: of one machine.
        machine_id: to name the table by.
        words: of the page's language.
    """
    asked = rows.assign(asked=asked_of(rows))
    groups = [group for _, group in asked.groupby(_KEY, dropna=False, sort=False)]
    cells = [_cells(plain(group.iloc[0].to_dict()), group) for group in groups]
    keys = ("engine", *_COLUMNS.values(), "gpu_layers", "kv_format", "asked", "settings")
    columns = tuple(Column(words[f"table.{key}"]) for key in keys)
    return Table(f"{machine_id}-engines", words["machine.engines"], columns, cells).without_empty()


def _cells(row: dict[str, Any], group: pd.DataFrame) -> tuple[str, ...]:
    return (
        name(" ".join(filter(None, [row["backend"], row["backend_version"]]))),
        *(EMPTY if row[column] is None else str(row[column]) for column in _COLUMNS),
        EMPTY if row["gpu_layers_effective"] is None else str(row["gpu_layers_effective"]),
        ", ".join(dict.fromkeys(row[column] or EMPTY for column in ("kv_k_format", "kv_v_format"))),
        _pairs([json.loads(row["asked"])]) or EMPTY,
        _pairs([json.loads(text) for text in group["engine_settings"].dropna().unique()]) or EMPTY,
    )


def _pairs(documents: list[Any]) -> str:
    """`key=value` of settings; several values where rows differ, such as a buffer that grows with the case."""
    values: dict[str, list[str]] = {}
    for document in documents:
        for key, value in document.items() if isinstance(document, dict) else ():
            if key != "asked" and value is not None:
                values.setdefault(key, []).append(value if isinstance(value, str) else json.dumps(value))
    return ", ".join(f"{key}={_values([*dict.fromkeys(found)])}" for key, found in values.items())


def _values(found: list[str]) -> str:
    return "|".join(found[:_MOST_VALUES]) + ("|…" if len(found) > _MOST_VALUES else "")
