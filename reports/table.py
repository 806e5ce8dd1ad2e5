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
from reports.served import is_served, ttft_cell, untold
from reports.summary import plain
from results.verify import MARGIN
from results.weight_width import nominal_bits

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
CLIENT = "*: TTFT at a server's client: request sent to first token, with tokenising, queueing and the network"
VENDOR = "v: a ceiling at the vendor's bandwidth, where none is measured"
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
    mbu = line["mbu"]
    return [
        case_name(line),
        ttft_cell(line),
        number(line["prefill_tok_s"]),
        number_with(line["decode_tok_s"], line["decode_sd_tok_s"]),
        _ceiling(line),
        percent(mbu) + ("!" if mbu is not None and mbu > 1 else ""),
        _peak(line),
        (line["verified"] or EMPTY) if line["n_ok"] else "failed" if line["n_failed"] else "skipped",
    ]


def _ceiling(line: Line) -> str:
    """At the measured bandwidth; a server's machine may be known by its vendor's alone."""
    if line["decode_ceiling_tok_s"] is None and line["decode_ceiling_spec_tok_s"] is not None:
        return f"{number(line['decode_ceiling_spec_tok_s'])} v"
    return number(line["decode_ceiling_tok_s"]) + (" c" if line["decode_ceiling_bound"] == "compute" else "")


def _peak(line: Line) -> str:
    """The accelerator's memory where there is one. The two are never added: they may be the same memory."""
    for where in ("device", "host"):
        peak = line[f"peak_{where}_bytes"]
        if peak is not None:
            return f"{gigabytes(peak)} {where}"
    return EMPTY


def _notes(named: list[tuple[str, Line]]) -> list[str]:
    """What weights cost, servers take idle and do not tell; rates above ceilings, why lines have no verdict or rate."""
    weights: dict[str, list[str]] = {}
    idle: dict[str, list[str]] = {}
    doubts: dict[str, list[str]] = {}
    skipped: dict[str, list[str]] = {}
    above = []
    failed: dict[str, list[str]] = {}
    for name, line in named:
        if line["n_ok"] and (told := _weights(line)):
            weights.setdefault(told, []).append(name)
        if line["server_latency_s"] is not None:
            idle.setdefault(_idle(line), []).append(name)
        if line["ceiling_warning"]:
            above.append(f"! {name}, {case_name(line)}: {line['ceiling_warning']}")
        if line["n_ok"] and line["verified_why"]:
            doubts.setdefault(line["verified_why"], []).append(name)
        if line["n_skipped"] and not line["n_ok"] + line["n_failed"]:
            skipped.setdefault(f"skipped: {line['error'] or 'no reason was given'}", []).append(name)
        if line["n_failed"]:
            tried = line["n_ok"] + line["n_failed"]
            reason = f"{line['n_failed']} of {tried} failed: {line['error'] or 'no reason was given'}"
            failed.setdefault(reason, []).append(f"{name}, {case_name(line)}")
    told_of = weights | idle | untold(named) | doubts | skipped | failed
    return [*above, *(f"{'; '.join(dict.fromkeys(names))}: {text}" for text, names in told_of.items())]


def _weights(line: Line) -> str | None:
    """True bits and quality of quantised weights."""
    if nominal_bits(line["weight_format"]) is None or line["weight_bits"] is None:
        return None
    bits = f"{number(line['weight_bits'])} true bits a weight"
    if line["quality_kl"] is None:
        return bits
    kl, top1 = number(line["quality_kl"]), percent(line["quality_top1"])
    return f"{bits}; KL divergence from unquantised {kl} nats, same first choice {top1} %"


def _idle(line: Line) -> str:
    """What a server takes for next to nothing."""
    network_s = line["network_latency_s"]
    get = "" if network_s is None else f", a GET {number(1e3 * network_s)} ms"
    shortest = f"the shortest prompt has TTFT {number(1e3 * line['server_latency_s'])} ms"
    return f"while the server is idle, {shortest}{get}; no TTFT has anything subtracted"


def _legend(lines: list[Line]) -> list[str]:
    spreads = [text for basis, text in SPREADS.items() if any(line["decode_sd_of"] == basis for line in lines)]
    ceilings = [CEILING] if any(line["mbu"] is not None for line in lines) else []
    ceilings += [VENDOR] if any(_ceiling(line).endswith(" v") for line in lines) else []
    ceilings += [COMPUTE] if any(line["decode_ceiling_bound"] == "compute" for line in lines) else []
    client = [CLIENT] if any(is_served(line) for line in lines) else []
    return [*client, *spreads, *ceilings, *([VERIFIED] if any(line["verified"] for line in lines) else [])]
