"""The headline of a report as bars of text, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from reports.case import case_name
from reports.headline import headlines, no_headline
from reports.numbers import number, percent
from reports.page.texts import name
from reports.skipped import skipped_rows
from reports.summary import plain, summarise

if TYPE_CHECKING:
    import pandas as pd

    from reports.gather import Gathered
    from reports.words import Words

Line = dict[str, Any]

EIGHTHS = " ▏▎▍▌▋▊▉█"
MARK, ASCII_BAR, ASCII_MARK = "│", "#", "|"
BLOCKS = EIGHTHS + MARK

_SHORTEST_BAR, _LONGEST_BAR = 10, 60
_MOST_REASONS = 5


def show(gathered: Gathered, words: Words, *, width: int, blocks: bool) -> str:
    """Decode rates as bars, with a mark where the ceiling is: a group for each model, weight format and case.

    Args:
        gathered: the rows.
        words: of a language.
        width: of a line, in terminal cells; very narrow ones are exceeded.
        blocks: whether the terminal can show `BLOCKS`; else it is ASCII.
    """
    lines = summarise(gathered.own)
    headline = [[plain(line) for line in group.to_dict("records")] for group in headlines(lines)]
    groups = [_group(group, words, width, blocks) for group in headline]
    texts = [*groups, words["show.legend"]] if groups else [no_headline(gathered, lines, words)]
    own = gathered.own
    failures = _unmeasured(own[own["status"] == "failed"], "failed", own, words)
    skipped = _unmeasured(skipped_rows(own), "skipped", own, words)
    notes = [*failures, *skipped, *_left_out(gathered, words)]
    return "\n\n".join([*texts, *(["\n".join(notes)] if notes else [])])


def _group(lines: list[Line], words: Words, width: int, blocks: bool) -> str:
    first = lines[0]
    title = words["show.title"].format(
        model=name(first["model"]),
        format=name(first["weight_format"] or ""),
        case=case_name(first),
    )
    several = len({line["machine"] for line in lines}) > 1
    labels = [_label(line, show_machine=several) for line in lines]
    rates = [number(line["decode_tok_s"]) for line in lines]
    ceilings = [_ceiling(line, words) for line in lines]
    label_width, rate_width, ceiling_width = (max(map(cell_len, texts)) for texts in (labels, rates, ceilings))
    room = width - label_width - rate_width - ceiling_width - 6
    bar_width = min(max(room, _SHORTEST_BAR), _LONGEST_BAR)
    longest = max(max(line["decode_tok_s"], line["decode_ceiling_tok_s"] or 0) for line in lines)
    rows = [title if several else f"{name(first['machine'])}: {title}"]
    for line, label, rate, ceiling in zip(lines, labels, rates, ceilings, strict=True):
        bar = _bar(line["decode_tok_s"], line["decode_ceiling_tok_s"], bar_width / longest, bar_width, blocks)
        rows.append(f"{label}{' ' * (label_width - cell_len(label))}  {bar}  {rate:>{rate_width}}  {ceiling}".rstrip())
    return "\n".join(rows)


def _label(line: Line, *, show_machine: bool) -> str:
    parts = [line["machine"] if show_machine else None, line["backend"], line["settings"]]
    return name(" ".join(filter(None, parts)))


def _ceiling(line: Line, words: Words) -> str:
    if line["mbu"] is None:
        return words["show.no_ceiling"]
    text = words["show.line"].format(mbu=percent(line["mbu"]), ceiling=number(line["decode_ceiling_tok_s"]))
    return f"{text} !" if line["mbu"] > 1 else text


def _bar(rate: float, ceiling: float | None, cells_per_unit: float, width: int, blocks: bool) -> str:
    """A bar of `width` cells; the mark takes the cell in which the ceiling ends."""
    eighths = round(8 * rate * cells_per_unit)
    if blocks:
        bar = EIGHTHS[-1] * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
    else:
        bar = ASCII_BAR * round(eighths / 8)
    cells = list(bar.ljust(width))[:width]
    if ceiling is not None:
        cells[min(max(round(ceiling * cells_per_unit) - 1, 0), width - 1)] = MARK if blocks else ASCII_MARK
    return "".join(cells)


def _unmeasured(found: pd.DataFrame, status: str, own: pd.DataFrame, words: Words) -> list[str]:
    """Those of all rows that have a status without rates, with the reasons."""
    if found.empty:
        return []
    reasons = found["error"].fillna(words["doubts.no_reason"])
    counts = (found["backend"] + ", " + found["model"] + ": " + reasons).value_counts(sort=True)
    shown = [f"  {count} × {text}" for text, count in counts.head(_MOST_REASONS).items()]
    more = len(counts) - len(shown)
    return [
        words[f"show.{status}"].format(n=len(found), all=int((own["status"] != "skipped").sum())),
        *shown,
        *([f"  {words['doubts.more'].format(n=more)}"] if more else []),
    ]


def _left_out(gathered: Gathered, words: Words) -> list[str]:
    n_rows = len(gathered.faulty) + len(gathered.incomparable)
    return [words["show.left_out"].format(n=n_rows)] if n_rows else []
