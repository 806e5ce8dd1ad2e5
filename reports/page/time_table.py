"""Where a token's time goes, line by line: reading weights, reading the KV cache, and neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.roofline.breakdown import split
from reports.numbers import number
from reports.page.lines import line_cells, line_columns
from reports.page.parts import Column, Table
from reports.summary import STEP, plain

if TYPE_CHECKING:
    import pandas as pd

    from harness.roofline.breakdown import Split
    from reports.words import Words


def parts(line: dict[str, Any]) -> Split | None:
    """A line's time a token, taken apart at the measured bandwidth.

    None where something of it is not known, or where a step is not bound by its memory.

    Args:
        line: of `reports.summary.summarise`, its empty cells None.
    """
    streamed, kv, bandwidth_gbs = (line[column] for column in STEP)
    unknown = not line["decode_tok_s"] or streamed is None or kv is None or not bandwidth_gbs
    if unknown or line["decode_ceiling_bound"] == "compute":
        return None
    try:
        return split(line["batch"] / line["decode_tok_s"], streamed, kv, 1e9 * bandwidth_gbs)
    except ValueError:  # a number that no step can have
        return None


def time_table(lines: pd.DataFrame, words: Words) -> Table | None:
    """The table, of the lines that tell; None where none does."""
    found = [(line, parts(line)) for line in map(plain, lines.to_dict("records"))]
    rows = [
        (
            *line_cells(line),
            *(number(1e3 * seconds) for seconds in (each.tpot_s, each.weights_s, each.kv_s, each.rest_s)),
            number(line["bandwidth_measured_gbs"]),
        )
        for line, each in found
        if each
    ]
    if not rows:
        return None
    numbers = ("tpot", "weights", "kv", "rest", "bandwidth")
    columns = (*line_columns(words), *(Column(words[f"table.{key}"], number=True) for key in numbers))
    return Table("time-table", words["time.caption"], columns, rows, (words["time.note"],))
