"""A summary as text: for a terminal, for Markdown, or for the next program."""

from __future__ import annotations

import json
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.case import case_name
from reports.numbers import EMPTY, gigabytes, number, number_with, percent
from reports.summary import plain
from results.verify import MARGIN

if TYPE_CHECKING:
    import pandas as pd

Format = Literal["table", "md", "json", "csv"]
Line = dict[str, Any]

HEADINGS = [
    *("engine", "case", "TTFT ms", "prefill tok/s", "decode tok/s", "ceiling tok/s", "MBU %", "peak GB", "verified")
]
LEFT = 2  # columns that are text; the others are set to the right
SPREADS = {
    "launches": "±: standard deviation of the launches' medians",
    "repetitions": "±: standard deviation of the repetitions, where there are fewer than three launches",
}
CEILING = "ceiling: the decode rate if its bytes moved at the measured memory bandwidth; MBU: decode rate / ceiling"
COMPUTE = "c: the operations of a step, at the measured rate of matrix products, take longer than its bytes"
VERIFIED = f"verified: logits of another engine agree, relative L2 within {MARGIN} times what rounding makes"
STYLES = {"yes": "green", "no": "bold red", "failed": "bold red"}


def render(summary: pd.DataFrame, form: Format, console: Console | None = None) -> str:
    """A summary as text.

    Args:
        summary: as `reports.summary.summarise` gives it.
        form: "table" and "md" are for people: a table for each model and weight format, in milliseconds, tokens a
            second and GB of 10^9 bytes, and below it what needs saying. "json" and "csv" have all columns, in the
            units of their names.
        console: whose width and colours a "table" takes; without one it is plain text, 100 columns wide.
    """
    lines = [plain(line) for line in summary.to_dict("records")]
    if form == "json":
        return json.dumps(lines, indent=2, ensure_ascii=False) + "\n"
    if form == "csv":
        return summary.to_csv(index=False)
    if form == "md":
        return _markdown(lines)
    return _terminal(lines, console or Console(file=StringIO(), width=100))


def _terminal(lines: list[Line], console: Console) -> str:
    with console.capture() as capture:
        for title, rows, notes in _sections(lines):
            table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
            table.padding = (0, 1, 0, 0)
            for heading in HEADINGS[:LEFT]:  # may be folded
                table.add_column(heading, overflow="fold", min_width=5)
            for heading in HEADINGS[LEFT:]:  # must not be cut
                table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
            for *cells, verdict in rows:
                table.add_row(*map(Text, cells), Text(verdict, STYLES.get(verdict, "")))
            console.print(table, *map(Text, notes), "", sep="\n")
        console.print(*map(Text, _legend(lines)), sep="\n")
    return capture.get()


def _markdown(lines: list[Line]) -> str:
    rule = ["---"] * LEFT + ["---:"] * (len(HEADINGS) - LEFT)
    blocks = []
    for title, rows, notes in _sections(lines):
        cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
        table = "\n".join(f"| {' | '.join(row)} |" for row in (HEADINGS, rule, *cells))
        blocks += [f"**{title}**", table, *notes]
    return "\n\n".join([*blocks, *_legend(lines)]) + "\n"


def _sections(lines: list[Line]) -> list[tuple[str, list[list[str]], list[str]]]:
    """Title, cells and notes of the table of each model and weight format."""
    machines = {line["machine"] for line in lines}
    sections = []
    for model, alike in groupby(lines, key=lambda line: (line["model"], line["weight_format"])):
        named = [(_name(line, show_machine=len(machines) > 1), line) for line in alike]
        title = ", ".join([*filter(None, model), *(machines if len(machines) == 1 else ())])
        sections.append((title, [[name, *_cells(line)] for name, line in named], _notes(named)))
    return sections


def _name(line: Line, *, show_machine: bool) -> str:
    """Of an engine, with what tells it from others in the table."""
    return ", ".join(filter(None, [line["backend"], line["machine"] if show_machine else None, line["settings"]]))


def _cells(line: Line) -> list[str]:
    ttft, mbu = line["ttft_s"], line["mbu"]
    return [
        case_name(line),
        number(None if ttft is None else 1e3 * ttft),
        number(line["prefill_tok_s"]),
        number_with(line["decode_tok_s"], line["decode_sd_tok_s"]),
        number(line["decode_ceiling_tok_s"]) + (" c" if line["decode_ceiling_bound"] == "compute" else ""),
        percent(mbu) + ("!" if mbu is not None and mbu > 1 else ""),
        _peak(line),
        (line["verified"] or EMPTY) if line["n_ok"] else "failed",
    ]


def _peak(line: Line) -> str:
    """The accelerator's memory where there is one. The two are never added: they may be the same memory."""
    for where in ("device", "host"):
        peak = line[f"peak_{where}_bytes"]
        if peak is not None:
            return f"{gigabytes(peak)} {where}"
    return EMPTY


def _notes(named: list[tuple[str, Line]]) -> list[str]:
    """Rates above their ceilings, why engines are not verified, and why cases failed."""
    doubts: dict[str, list[str]] = {}
    failures = []
    for name, line in named:
        if line["ceiling_warning"]:
            failures.append(f"! {name}, {case_name(line)}: {line['ceiling_warning']}")
        if line["n_ok"] and line["verified_why"]:
            doubts.setdefault(line["verified_why"], []).append(name)
        if line["n_failed"]:
            tried = line["n_ok"] + line["n_failed"]
            error = line["error"] or "no reason was given"
            failures.append(f"{name}, {case_name(line)}: {line['n_failed']} of {tried} failed: {error}")
    return [*(f"{'; '.join(dict.fromkeys(names))}: {why}" for why, names in doubts.items()), *failures]


def _legend(lines: list[Line]) -> list[str]:
    spreads = [text for basis, text in SPREADS.items() if any(line["decode_sd_of"] == basis for line in lines)]
    ceilings = [CEILING] if any(line["mbu"] is not None for line in lines) else []
    ceilings += [COMPUTE] if any(line["decode_ceiling_bound"] == "compute" for line in lines) else []
    return [*spreads, *ceilings, *([VERIFIED] if any(line["verified"] for line in lines) else [])]
