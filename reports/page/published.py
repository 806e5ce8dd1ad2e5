"""Rates that others published: a table of their own, averaged with nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.numbers import EMPTY, number
from reports.page.parts import Column, Table
from reports.page.texts import name
from reports.summary import plain

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

_COLUMNS = {"device_name": "device", "engine_build": "engine", "model": "model", "weight_format": "format"}


def published_table(rows: pd.DataFrame, words: Words) -> Table | None:
    """The rows whose provenance is published; None where there are none."""
    if rows.empty:
        return None
    cells = [
        (
            *(name(line[column] or EMPTY) for column in _COLUMNS),
            EMPTY if line["decode_start"] is None else str(line["decode_start"]),
            number(line["decode_tok_s"]),
            line["source"] or EMPTY,
        )
        for line in map(plain, rows.to_dict("records"))
    ]
    keys = (*_COLUMNS.values(), "context", "decode", "source")
    columns = tuple(Column(words[f"table.{key}"], number=key in {"context", "decode"}) for key in keys)
    return Table("published-table", words["published.caption"], columns, cells)
