"""Formats beside each other: true bits, rate, and what the bits cost in quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.numbers import number, number_with, percent
from reports.page.lines import line_cells, line_columns
from reports.page.parts import Column, Table
from reports.summary import plain
from results.schema import CASE
from results.weight_width import nominal_bits

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

_NUMBERS = ("bits", "decode", "mbu", "kl", "top1")


def quality_table(lines: pd.DataFrame, words: Words) -> Table | None:
    """The lines of quantised weights, and of the same model and workload on the same machine with others.

    None where no weights are quantised.
    """
    quantised = lines["weight_format"].map(nominal_bits).notna() & (lines["n_ok"] > 0)
    alike = lines.assign(quantised=quantised).groupby(["machine", "model", *CASE], dropna=False)["quantised"]
    shown = lines[alike.transform("any").astype(bool) & (lines["n_ok"] > 0)]
    if shown.empty:
        return None
    rows = [
        (
            *line_cells(line),
            number(line["weight_bits"]),
            number_with(line["decode_tok_s"], line["decode_sd_tok_s"]),
            percent(line["mbu"]),
            number(line["quality_kl"]),
            percent(line["quality_top1"]),
        )
        for line in map(plain, shown.to_dict("records"))
    ]
    columns = (*line_columns(words), *(Column(words[f"table.{key}"], number=True) for key in _NUMBERS))
    notes = (words["quality.bits"], words["quality.loss"])
    return Table("quality-table", words["quality.caption"], columns, rows, notes).without_empty()
