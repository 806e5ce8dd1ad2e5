"""Servers as their users see them: waiting, alone and together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.numbers import number
from reports.page.lines import line_cells, line_columns
from reports.page.parts import Column, Table
from reports.served import is_served, untold
from reports.summary import plain
from results.safe_text import without_bidi_marks

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

_TIMES = {
    "ttft": "ttft_client_s",
    "ttft_p90": "ttft_client_p90_s",
    "ttft_p99": "ttft_client_p99_s",
    "idle": "server_latency_s",
    "get": "network_latency_s",
    "itl_p50": "itl_p50_s",
    "itl_p99": "itl_p99_s",
}
_RATES = {"one_stream": "request_tok_s", "together": "decode_tok_s", "output": "output_tok_s"}


def servers_table(lines: pd.DataFrame, words: Words) -> Table | None:
    """The lines of servers; None where there are none."""
    found = [line for line in map(plain, lines.to_dict("records")) if is_served(line)]
    if not found:
        return None
    rows = [
        (
            *line_cells(line),
            *(number(None if line[column] is None else 1e3 * line[column]) for column in _TIMES.values()),
            *(number(line[column]) for column in _RATES.values()),
        )
        for line in found
    ]
    columns = (*line_columns(words), *(Column(words[f"table.{key}"], number=True) for key in (*_TIMES, *_RATES)))
    told = untold((", ".join(line_cells(line)[:2]), line) for line in found)
    notes = (
        words["servers.ttft"],
        words["servers.rates"],
        *(f"{'; '.join(dict.fromkeys(names))}: {without_bidi_marks(why)}" for why, names in told.items()),
    )
    return Table("servers-table", words["servers.caption"], columns, rows, notes).without_empty()
