"""Panels of lying bars, one row a line, each panel with a scale of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from reports.figures.contract import Drawn
from reports.figures.data import telling
from reports.figures.sheet import NOTE_LINE, WIDTH, Sheet, key_height, only_columns
from reports.figures.style import NORMAL, QUIET, SMALL
from reports.figures.texts import joined, label
from reports.headline import headlines
from reports.numbers import count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


@dataclass(frozen=True)
class Content:
    """All of a figure but its title and its frame.

    Attributes:
        panels: of it.
        bars: draws a panel's lines; row i is at y = i.
        key: what the marks mean.
        unit: of the x axis.
        columns: beside the bars.
        n_left_out: lines that found no room.
        notes: for the foot.
        alt: what it tells someone who cannot see it.
    """

    panels: Sequence[Panel]
    bars: Callable[[Axes, pd.DataFrame], None]
    key: Sequence[Entry]
    unit: str
    columns: Sequence[Cells]
    n_left_out: int
    alt: str
    notes: Sequence[str] = ()


def figure(name: str, words: Words, made: Content) -> Drawn:
    """A figure of panels of bars.

    Args:
        name: of its words.
        words: of a language.
        made: what it shows.
    """
    more = [words["figures.more"].format(n=made.n_left_out)] if made.n_left_out else []
    sheet, axes = _frame(made, [*more, *made.notes])
    for one, panel in zip(axes, made.panels, strict=True):
        made.bars(one, panel.lines)
    return Drawn(sheet.figure, words[f"figures.{name}.title"], made.alt)


def headline(found: pd.DataFrame, words: Words) -> tuple[pd.DataFrame, list[Panel], int]:
    """Of each model the case that most engines did, as `reports.headline` chooses it.

    Returns:
        As many lines as one figure can show; a panel for each model and work of them, the fastest line first, since
        only at equal contexts are rates set side by side; and how many lines are left out.
    """
    lines = pd.concat(headlines(found), ignore_index=True)
    shown = lines.head(MOST_BARS)
    works = shown.groupby(["model", "context", "n_gen", "batch"], sort=False)
    return shown, [_work(work, words) for _, work in works], len(lines) - len(shown)


def _work(lines: pd.DataFrame, words: Words) -> Panel:
    one = lines.iloc[0]
    differing = telling(lines, _TELLING)
    alike = [one[column] for column in _TELLING if column not in differing]
    title = words["figures.panel"].format(
        what=joined([one["model"], *alike], _TITLE_CHARACTERS),
        context=count(one["context"]),
        gen=count(one["n_gen"]),
        batch=one["batch"],
    )
    return Panel(title, lines.sort_values("decode_tok_s", ascending=False, kind="stable"), differing)


def _frame(made: Content, notes: Sequence[str]) -> tuple[Sheet, list[Axes]]:
    """The axes of each panel, with everything but the bars."""
    foot = NOTE_LINE * len(notes) + 0.1
    heights = [_HEAD + _ROW * len(panel.lines) + _FOOT for panel in made.panels]
    sheet = Sheet(key_height(made.key) + sum(heights) + foot)
    sheet.key(made.key)
    sheet.note("\n".join(notes))
    top, drawn = key_height(made.key), []
    width = WIDTH - _LABELS - max(0.3, sum(column.width for column in made.columns) + 0.1)
    for number, (panel, height) in enumerate(zip(made.panels, heights, strict=True)):
        sheet.text(0.15, top + 0.25, panel.title, fontsize=NORMAL, fontweight="bold")
        axes = sheet.axes(_LABELS, top + _HEAD, width, _ROW * len(panel.lines))
        names = [label(line, panel.telling, LABEL_CHARACTERS) for line in panel.rows]
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel(made.unit)
        only_columns(axes)
        edge = _LABELS + width
        for column in made.columns:
            edge += column.width
            sheet.text(edge, top + _HEAD - 0.12, column.heading, ha="right", fontsize=SMALL, color=QUIET)
            for row, text in enumerate(column.texts[number]):
                sheet.text(edge, top + _HEAD + _ROW * (row + 0.5), text, ha="right", fontsize=SMALL)
        drawn.append(axes)
        top += height
    return sheet, drawn
