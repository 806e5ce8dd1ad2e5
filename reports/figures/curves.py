"""Panels of curves, two beside each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.figures.contract import Drawn, Missing
from reports.figures.sheet import NOTE_LINE, WIDTH, Sheet, key_height
from reports.figures.style import NORMAL
from reports.figures.texts import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.sheet import Entry
    from reports.words import Words

_MOST_PANELS = 8
TITLE_CHARACTERS = 44
_LEFT, _GAP, _RIGHT = 0.95, 1.05, 0.3  # inches beside the axes
_HEAD, _HEIGHT, _FOOT = 0.75, 2.7, 0.85


@dataclass(frozen=True)
class Panel:
    """One pair of axes: two lines of title, what draws into them, and the y axis's unit where it is its own."""

    titles: tuple[str, str]
    curves: Callable[[Axes], None]
    y_unit: str = ""


@dataclass(frozen=True)
class Content:
    """All of a figure but its title and its frame; `units` are those of the x and the y axis."""

    panels: Sequence[Panel]
    key: Sequence[Entry]
    units: tuple[str, str]
    alt: str


def figure(
    name: str,
    groups: Sequence[pd.DataFrame],
    places: str,
    words: Words,
    content: Callable[[list[pd.DataFrame]], Content],
    panels_a_group: int = 1,
) -> Drawn | Missing:
    """A figure of as many groups as fit, or what to run where there are none.

    Args:
        name: of its words.
        groups: of lines, each of one machine.
        places: the column of which a better group has more different values.
        words: of a language.
        content: from the groups that are shown, of which there is at least one.
        panels_a_group: that it makes.
    """
    title = words[f"figures.{name}.title"]
    if not groups:
        return Missing(title, words[f"figures.{name}.missing"])
    shown = _choose(groups, places, _MOST_PANELS // panels_a_group)
    made, more = content(shown), len(groups) - len(shown)
    note = words["figures.more"].format(n=more) if more else ""
    sheet, axes = _frame([panel.titles for panel in made.panels], made.key, made.units, note)
    for one, panel in zip(axes, made.panels, strict=True):
        panel.curves(one)
        if panel.y_unit:
            one.set_ylabel(panel.y_unit)
    return Drawn(sheet.figure, title, made.alt)


def titles(
    line: Mapping[Any, Any] | pd.Series[Any], detail: str = "", *, reserved: int = 0, model: str = "model"
) -> tuple[str, str]:
    """The two lines of a panel of one engine and model.

    Args:
        line: of `data.lines`.
        detail: what else the panel is of.
        reserved: characters for that.
        model: the column of the model's name.
    """
    name = joined([line["backend"], line["machine"]], TITLE_CHARACTERS - 6)
    what = joined([line[model], line["weight_format"]], TITLE_CHARACTERS - reserved)
    return name, f"{what}, {detail}" if detail else what


def engine_name(line: Mapping[Any, Any] | pd.Series[Any], model: str = "model") -> str:
    """An engine where there is room: its machine and its model too."""
    return joined([line["backend"], line["machine"], line[model]], 80)


def _choose(groups: Sequence[pd.DataFrame], places: str, most: int) -> list[pd.DataFrame]:
    """Each machine's best group, then its second best."""
    best_first = sorted(groups, key=lambda group: -group[places].nunique())
    seen: Counter[str] = Counter()
    ranks = []
    for group in best_first:
        machine = group["machine"].iloc[0]
        ranks.append(seen[machine])
        seen[machine] += 1
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    return [best_first[number] for number in order[:most]]


def _frame(
    titles: Sequence[tuple[str, str]], entries: Sequence[Entry], units: tuple[str, str], note: str
) -> tuple[Sheet, list[Axes]]:
    """The axes of each panel, with everything but the curves.

    Args:
        titles: of each panel, two lines.
        entries: of the key.
        units: of the x and the y axis.
        note: for the foot; may be empty.
    """
    columns = 2 if len(titles) > 1 else 1
    width = (WIDTH - _LEFT - _GAP * (columns - 1) - _RIGHT) / columns
    row_height = _HEAD + _HEIGHT + _FOOT
    n_rows = -(-len(titles) // columns)
    first = key_height(entries)
    sheet = Sheet(first + n_rows * row_height + NOTE_LINE * len(note.splitlines()))
    sheet.key(entries)
    sheet.note(note)
    drawn = []
    for number, (title, subtitle) in enumerate(titles):
        left = _LEFT + (number % columns) * (width + _GAP)
        top = first + (number // columns) * row_height
        sheet.text(left - 0.6, top + 0.25, title, fontsize=NORMAL, fontweight="bold")
        sheet.text(left - 0.6, top + 0.49, subtitle, fontsize=NORMAL)
        axes = sheet.axes(left, top + _HEAD, width, _HEIGHT)
        axes.set_xlabel(units[0])
        axes.set_ylabel(units[1])
        drawn.append(axes)
    return sheet, drawn
