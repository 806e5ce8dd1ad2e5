"""Panels of curves, two beside each other."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from reports.figures.sheet import NOTE_LINE, WIDTH, Sheet, key_height
from reports.figures.style import NORMAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.sheet import Entry

MOST_PANELS = 8
TITLE_CHARACTERS = 44
_LEFT, _GAP, _RIGHT = 0.95, 1.05, 0.3  # inches beside the axes
_HEAD, _HEIGHT, _FOOT = 0.75, 2.7, 0.85


def choose(groups: Sequence[pd.DataFrame], places: str) -> tuple[list[pd.DataFrame], int]:
    """As many groups as one figure can show, and how many are left out: each machine's best, then its second best.

    Args:
        groups: of lines, each of one machine.
        places: the column of which a better group has more different values.
    """
    best_first = sorted(groups, key=lambda group: -group[places].nunique())
    seen: Counter[str] = Counter()
    ranks = []
    for group in best_first:
        machine = group["machine"].iloc[0]
        ranks.append(seen[machine])
        seen[machine] += 1
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    return [best_first[number] for number in order[:MOST_PANELS]], max(0, len(groups) - MOST_PANELS)


def draw(
    titles: Sequence[tuple[str, str]], entries: Sequence[Entry], units: tuple[str, str], note: str = ""
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
