"""Panels of lying bars, one row a line, each panel with a scale of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from reports.figures.data import telling
from reports.figures.sheet import NOTE_LINE, WIDTH, Sheet, key_height, only_columns
from reports.figures.style import NORMAL, QUIET, SMALL
from reports.figures.texts import joined, label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from reports.figures.sheet import Entry
    from reports.words import Words

MOST_BARS = 40
THICKNESS = 0.62  # of a bar, in rows
TICK: dict[str, Any] = {"marker": "|", "markersize": 17, "markeredgewidth": 2.4}  # as high as a bar
LABEL_CHARACTERS = 36
_TITLE_CHARACTERS = 50
_TELLING = ["weight_format", "machine"]
_LABELS = 3.3
_ROW, _HEAD, _FOOT = 0.34, 0.65, 0.75  # inches


@dataclass(frozen=True)
class Panel:
    """Rows under one title: `lines` of `data.lines`, and the columns that tell them apart."""

    title: str
    lines: pd.DataFrame
    telling: list[str]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines from top to bottom."""
        return self.lines.to_dict("records")  # type: ignore[return-value]


@dataclass(frozen=True)
class Cells:
    """A column of texts to the right of the bars."""

    heading: str
    width: float  # inches
    texts: list[list[str]]  # by panel


def first(groups: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, int]:
    """As many lines of the groups, in their order, as one figure can show, and how many are left out."""
    lines = pd.concat(groups, ignore_index=True)
    return lines.head(MOST_BARS), max(0, len(lines) - MOST_BARS)


def by_work(lines: pd.DataFrame, words: Words) -> list[Panel]:
    """A panel for each model and work, the fastest line first: only at equal contexts are rates set side by side."""
    groups = lines.groupby(["model", "context", "n_gen", "batch"], sort=False)
    return [_work(group, words) for _, group in groups]


def _work(lines: pd.DataFrame, words: Words) -> Panel:
    one = lines.iloc[0]
    differing = telling(lines, _TELLING)
    alike = [one[column] for column in _TELLING if column not in differing]
    title = words["figures.panel"].format(
        what=joined([one["model"], *alike], _TITLE_CHARACTERS),
        context=f"{one['context']:,}",
        gen=f"{one['n_gen']:,}",
        batch=one["batch"],
    )
    return Panel(title, lines.sort_values("decode_tok_s", ascending=False, kind="stable"), differing)


def draw(
    panels: Sequence[Panel], entries: Sequence[Entry], unit: str, columns: Sequence[Cells] = (), note: str = ""
) -> tuple[Sheet, list[Axes]]:
    """The axes of each panel, with everything but the bars; row i is at y = i."""
    foot = NOTE_LINE * len(note.splitlines()) + 0.1
    heights = [_HEAD + _ROW * len(panel.lines) + _FOOT for panel in panels]
    sheet = Sheet(key_height(entries) + sum(heights) + foot)
    sheet.key(entries)
    sheet.note(note)
    top, drawn = key_height(entries), []
    width = WIDTH - _LABELS - max(0.3, sum(column.width for column in columns) + 0.1)
    for number, (panel, height) in enumerate(zip(panels, heights, strict=True)):
        sheet.text(0.15, top + 0.25, panel.title, fontsize=NORMAL, fontweight="bold")
        axes = sheet.axes(_LABELS, top + _HEAD, width, _ROW * len(panel.lines))
        names = [label(line, panel.telling, LABEL_CHARACTERS) for line in panel.rows]
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel(unit)
        only_columns(axes)
        edge = _LABELS + width
        for column in columns:
            edge += column.width
            sheet.text(edge, top + _HEAD - 0.12, column.heading, ha="right", fontsize=SMALL, color=QUIET)
            for row, text in enumerate(column.texts[number]):
                sheet.text(edge, top + _HEAD + _ROW * (row + 0.5), text, ha="right", fontsize=SMALL)
        drawn.append(axes)
        top += height
    return sheet, drawn
