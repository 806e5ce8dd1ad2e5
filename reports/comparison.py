"""A comparison as text: for a terminal, for Markdown, or for the next program."""

from __future__ import annotations

import html
import json
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.case import case_name
from reports.numbers import number, percent
from reports.summary import plain
from results.amounts import counted
from results.compare.lines import METRICS
from results.compare.verdicts import ENOUGH_LAUNCHES, FASTER, LAUNCH_FLOOR, SAME, SLOWER, TOO_WIDE, UNKNOWN, VERDICTS
from results.spreadsheet import escape
from results.weight_width import nominal_bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.compare.compare import Comparison

Format = Literal["table", "md", "json", "csv"]
Line = dict[str, Any]

STYLES = {FASTER: "green", SLOWER: "bold red", UNKNOWN: "yellow"}
MOST_SHOWN = 3  # of what shares a reason
ALL = "--format json lists all that are not paired, each with its reason"
MOST_TOLD = 1e3  # the ends of an interval, one over the other
LEAST_TREND_PCT = 0.5  # a repetition; a smaller one is not worth a word
_RATE, _TIME = (1, "tok/s"), (1e3, "ms")
_UNITS = {"decode_tok_s": _RATE, "prefill_tok_s": _RATE, "ttft_s": _TIME, "ttft_client_s": _TIME}
_FROM_FLOOR = "~"


def render(comparison: Comparison, form: Format, console: Console | None = None) -> str:
    """A comparison as text.

    Args:
        comparison: as `results.compare.compare.compare` gives it.
        form: "table" and "md" are for people: a table for each model and what differs, below it what needs saying,
            then what was left out, and how to read it. "json" has everything in the units of the names; "csv" has a row
            for each pair, and for each line that is in none, with the verdict "not paired".
        console: whose width and colours a "table" takes; without one it is plain text, 100 columns wide.
    """
    if form == "json":
        return json.dumps(_document(comparison), indent=2, ensure_ascii=False) + "\n"
    if form == "csv":
        return _csv(comparison)
    if form == "md":
        return _markdown(comparison)
    return _terminal(comparison, console or Console(file=StringIO(), width=100))


def _document(comparison: Comparison) -> dict[str, Any]:
    tables = {name: getattr(comparison, name) for name in ("pairs", "left_out", "means")}
    return {
        "metric": comparison.metric,
        "min_effect": comparison.min_effect,
        "launch_floor": LAUNCH_FLOOR,
        "sides": comparison.sides,
        **{name: [plain(line) for line in table.to_dict("records")] for name, table in tables.items()},
    }


def _csv(comparison: Comparison) -> str:
    lines = [plain(line) for line in comparison.left_out.to_dict("records")]
    base = comparison.sides[0]
    unpaired = []
    for line in lines:
        prefix = "base_" if line["side"] == base else "new_"
        own = {f"{prefix}{name}": line.pop(name) for name in ("side", "machine", "backend")}
        other = {"new_side" if prefix == "base_" else "base_side": line.pop("against")}
        unpaired.append(own | other | line | {"verdict": "not paired", "verdict_why": line.pop("why")})
    table = pd.concat([comparison.pairs, pd.DataFrame(unpaired, dtype=object)])[list(comparison.pairs)]
    for name, cells in table.items():
        if pd.api.types.infer_dtype(cells, skipna=True) == "string":
            table[name] = escape(pa.array(cells, pa.string(), from_pandas=True)).to_pylist()
    return table.to_csv(index=False)


def _terminal(comparison: Comparison, console: Console) -> str:
    with console.capture() as capture:
        console.print(Text(_heading(comparison)), "", sep="\n")
        for title, headings, rows, notes in _sections(comparison):
            table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
            table.padding = (0, 1, 0, 0)
            for heading in headings[:-1]:
                justify: Literal["left", "right"] = "left" if heading == headings[0] else "right"
                table.add_column(heading.replace(" ", "\n", 1), justify=justify, no_wrap=True)
            table.add_column(headings[-1], overflow="fold")
            for *cells, verdict in rows:
                table.add_row(*map(Text, cells), Text(verdict, STYLES.get(verdict, "")))
            console.print(table, *map(Text, notes), "", sep="\n")
        closing = [_means(comparison), _left_out(comparison), _legend(comparison)]
        console.print(*(Text("\n".join([*lines, ""])) for lines in closing if lines), sep="\n")
    return capture.get()


def _markdown(comparison: Comparison) -> str:
    blocks = [_heading(comparison)]
    for title, headings, rows, notes in _sections(comparison):
        rule = ["---", *["---:"] * (len(headings) - 2), "---"]
        cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
        blocks += [f"**{title}**", "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *cells)), *notes]
    blocks += [*_means(comparison), *_left_out(comparison), *_legend(comparison)]
    return html.escape("\n\n".join(blocks), quote=False) + "\n"


def _heading(comparison: Comparison) -> str:
    base, *others = comparison.sides
    return f"{comparison.metric}; base: {base}; new: {', '.join(others)}"


def _sections(comparison: Comparison) -> list[tuple[str, list[str], list[list[str]], list[str]]]:
    """Title, headings, cells and notes of each table: a model, a new side, and the same difference."""
    unit = _UNITS[comparison.metric][1]
    headings = [
        *("case", f"base {unit}", f"new {unit}", "speed ratio", "interval 95 %", "launches"),
        *("base noise %", "new noise %", "verdict"),
    ]
    sections: dict[str, list[Line]] = {}
    for line in map(plain, comparison.pairs.to_dict("records")):
        sections.setdefault(_title(line, name_side=len(comparison.sides) > 2), []).append(line)
    return [
        (title, headings, [_cells(line, comparison.metric) for line in cases], _notes(cases))
        for title, cases in sections.items()
    ]


def _title(line: Line, *, name_side: bool) -> str:
    same = (line[f"base_{name}"] for name in ("backend", "machine") if line[f"base_{name}"] == line[f"new_{name}"])
    formats = dict.fromkeys(line[f"{side}_weight_format"] for side in ("base", "new"))
    what = ", ".join(filter(None, [line["model"], *(formats if len(formats) == 1 else ()), *same]))
    side = f"{line['new_side']}: " if name_side else ""
    return f"{side}{what}: {line['differs'] or 'the same settings'}"


def _cells(line: Line, metric: str) -> list[str]:
    scale = _UNITS[metric][0]
    return [
        case_name(line),
        number(scale * line["base"]),
        number(scale * line["new"]),
        f"{line['ratio']:.3f}",
        _interval(line),
        f"{line['base_launches']}, {line['new_launches']}",
        *(_noise(line, side) for side in ("base", "new")),
        line["verdict"],
    ]


def _interval(line: Line) -> str:
    mark = _FROM_FLOOR if line["interval_from"] == "floor" else ""
    low, high = line["ratio_low"], line["ratio_high"]
    # Two launches that differ much allow nearly any ratio; its digits would say nothing.
    return f"{mark}{low:.3f}–{high:.3f}" if high < MOST_TOLD * low else f"{mark}any"


def _noise(line: Line, side: str) -> str:
    values = (line[f"{side}_cv_{where}_pct"] for where in ("launches", "within"))
    return ", ".join("-" if value is None else f"{value:.{int(value < 10)}f}" for value in values)


def _notes(lines: list[Line]) -> list[str]:
    """What fewer bits cost, why one cannot tell, and what the repetitions show: a trend, outliers."""
    notes = list(dict.fromkeys(note for line in lines for note in _weights(line)))
    for line in lines:
        if line["verdict_why"]:
            notes.append(f"{case_name(line)}: cannot tell: {line['verdict_why']}")
        for side in ("base", "new"):
            trend, low, high = (line[f"{side}_{name}_pct"] for name in ("trend", "trend_low", "trend_high"))
            if low is not None and low * high > 0 and abs(trend) >= LEAST_TREND_PCT:  # two repetitions give no interval
                what = "slower from one repetition to the next: heat?" if trend < 0 else "faster: not warmed up?"
                notes.append(f"{case_name(line)}, {side}: {abs(trend):.1f} % ({low:+.1f} to {high:+.1f}) {what}")
            if line[f"{side}_outliers"]:
                tried = counted(line[f"{side}_repetitions"], "repetition")
                outliers = f"{line[f'{side}_outliers']} of {tried} far from their launch's median"
                notes.append(f"{case_name(line)}, {side}: {outliers}")
    return notes


def _weights(line: Line) -> list[str]:
    """Bits and quality, where a side's weights are quantised."""
    if not any(nominal_bits(line[f"{side}_weight_format"]) for side in ("base", "new")):
        return []

    def both(column: str, form: Callable[[float | None], str] = number) -> str:
        return " → ".join(form(line[f"{side}_{column}"]) for side in ("base", "new"))

    bits = f"true bits a weight {both('weight_bits')}"
    if all(line[f"{side}_quality_kl"] is None for side in ("base", "new")):
        return [f"{bits}; what they cost in quality was not measured"]
    return [
        f"{bits}; KL divergence from unquantised {both('quality_kl')} nats, "
        f"same first choice {both('quality_top1', percent)} %"
    ]


def _means(comparison: Comparison) -> list[str]:
    texts = []
    for line in map(plain, comparison.means.to_dict("records")):
        if line["cases"] > 1:
            engines = dict.fromkeys(
                f"{line[f'{side}_backend']} on {line[f'{side}_machine']}" for side in ("base", "new")
            )
            counts = ", ".join(f"{line[verdict]} {verdict}" for verdict in VERDICTS if line[verdict])
            texts.append(
                f"{line['base_side']} → {line['new_side']}, {' → '.join(engines)}: geometric mean of "
                f"{line['cases']} cases {line['ratio']:.3f} ({line['least']:.3f} to {line['most']:.3f}): {counts}"
            )
    return texts


def _left_out(comparison: Comparison) -> list[str]:
    """What is in no pair, in a line for each reason."""
    lines: dict[str, list[Line]] = {}
    for line in map(plain, comparison.left_out.to_dict("records")):
        lines.setdefault(line["reason"], []).append(line)
    texts = [_not_paired(reason, alike, several=len(comparison.sides) > 2) for reason, alike in lines.items()]
    return [*texts, ALL] if any(len(alike) > 1 for alike in lines.values()) else texts


def _not_paired(reason: str, lines: list[Line], *, several: bool) -> str:
    """How many, and the first of them."""
    cases: dict[str, list[str]] = {}
    for line in lines:
        against = f" against {line['against']}" if line["against"] and several else ""
        what = ", ".join(filter(None, [line["model"], line["weight_format"], line["backend"], line["machine"]]))
        cases.setdefault(f"{line['side']}{against}: {what}", []).append(case_name(line))
    whys = {line["why"] for line in lines}
    why = whys.pop() if len(whys) == 1 else reason
    told = [f"{who}, {_first(list(dict.fromkeys(some)), ', ')}" for who, some in cases.items()]
    return f"not paired, {counted(len(lines), 'case')}: {why}: {_first(told, '; ')}"


def _first(texts: list[str], comma: str) -> str:
    """Of many the first."""
    more = len(texts) - MOST_SHOWN
    return comma.join(texts[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _legend(comparison: Comparison) -> list[str]:
    if comparison.pairs.empty:
        return []
    ratio = "base / new" if METRICS[comparison.metric] < 0 else "new / base"
    found = set(comparison.pairs["interval_from"])
    intervals = {
        "launches": "95 % interval: Welch's t on the logarithms of the launches' medians",
        "floor": f"{_FROM_FLOOR} fewer than {ENOUGH_LAUNCHES} launches on a side: one launch is taken to vary by a "
        f"standard deviation of {100 * LAUNCH_FLOOR:g} %, or as its repetitions do where that is more",
    }
    return [
        "base, new: the geometric mean of the launches' medians, where other tables have their median",
        f"speed ratio: {ratio}, above 1 the new side is faster",
        *(text for basis, text in intervals.items() if basis in found),
        "noise: coefficient of variation between the launches' medians, and of the repetitions within a launch",
        f"{FASTER}, {SLOWER}: the interval clears {100 * comparison.min_effect:.3g} %, by Holm's correction for "
        f"{counted(len(comparison.pairs), 'comparison')}; {UNKNOWN}: it does not, and reaches {100 * TOO_WIDE:g} %, or "
        f"a side has a single repetition; else {SAME}",
    ]
