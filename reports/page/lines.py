"""A line of the summary in cells: who did what, and how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.case import case_name
from reports.numbers import EMPTY, gigabytes, number, number_with, percent
from reports.page.parts import Column, Table
from reports.page.texts import name
from reports.served import is_served, ttft_cell
from reports.summary import plain

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

Line = dict[str, Any]

_SUBJECT = ("machine", "engine", "model", "format", "case")
_NUMBERS = ("ttft", "prefill", "decode", "ceiling", "ceiling_spec", "mbu", "mfu", "peak")
_NOTES = ("case", "spread", "ceiling", "peak", "verified")


def line_columns(words: Words) -> tuple[Column, ...]:
    """The columns of `line_cells`."""
    return tuple(Column(words[f"table.{key}"]) for key in _SUBJECT)


def line_cells(line: Line) -> tuple[str, ...]:
    """Machine, engine with what tells it from its like, model, weight format and case of a summary's line."""
    engine = ", ".join(filter(None, [line["backend"], line["settings"]]))
    case = case_name(line)
    return (name(line["machine"]), name(engine), name(line["model"]), name(line["weight_format"] or EMPTY), case)


def results_table(lines: pd.DataFrame, words: Words) -> Table | None:
    """All lines of a summary; None where there are none."""
    if lines.empty:
        return None
    found = [plain(line) for line in lines.to_dict("records")]
    rows = [_cells(line, words) for line in found]
    columns = (
        *line_columns(words),
        *(Column(words[f"table.{key}"], number=True) for key in _NUMBERS),
        *(Column(words[f"table.{key}"]) for key in ("runs", "verified")),
    )
    served = ("client",) if any(is_served(line) for line in found) else ()
    notes = tuple(words[f"results.{key}"] for key in (*_NOTES, *served))
    return Table("results-table", words["results.caption"], columns, rows, notes).without_empty()


def _cells(line: Line, words: Words) -> tuple[str, ...]:
    return (
        *line_cells(line),
        ttft_cell(line),
        number(line["prefill_tok_s"]),
        number_with(line["decode_tok_s"], line["decode_sd_tok_s"]),
        number(line["decode_ceiling_tok_s"]) + (" c" if line["decode_ceiling_bound"] == "compute" else ""),
        number(line["decode_ceiling_spec_tok_s"]),
        _share(line["mbu"]),
        _share(line["mfu"]),
        _peak(line, words),
        _runs(line),
        _verdict(line, words),
    )


def _share(share: float | None) -> str:
    return percent(share) + ("!" if share is not None and share > 1 else "")


def _peak(line: Line, words: Words) -> str:
    """The accelerator's memory where there is one. The two are never added: they may be the same memory."""
    for where in ("device", "host"):
        peak = line[f"peak_{where}_bytes"]
        if peak is not None:
            return f"{gigabytes(peak)} {words[f'results.{where}']}"
    return EMPTY


def _runs(line: Line) -> str:
    return f"{line['launches']} × {round(line['n_ok'] / line['launches'], 2):g}" if line["launches"] else EMPTY


def _verdict(line: Line, words: Words) -> str:
    if not line["n_ok"]:
        return words["results.failed" if line["n_failed"] else "results.skipped"]
    return words[f"results.{line['verified']}"] if line["verified"] in {"yes", "no"} else EMPTY
