"""A page of axes placed in inches from its upper left corner, so that no text's width moves anything.

The SVG is shown in fonts that are not ours to measure.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from reports.figures.style import GRID, NORMAL, QUIET, SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from matplotlib.typing import LineStyleType

WIDTH = 10.0
KEY_LINE = 0.3
_KEY_COLUMNS = 3
_MARGIN = 0.15
_SWATCH = 0.4
_ROOM = 1.3  # beside the outermost points
_LEAST_DECADES = 10.0
_MOST_TICKS = 9


@dataclass(frozen=True)
class Entry:
    """What a mark means, as one entry of a figure's key."""

    mark: Line2D | Patch
    text: str


class Sheet:
    """A figure of a height in inches.

    Args:
        height: in inches; the width is `WIDTH`.
    """

    def __init__(self, height: float) -> None:
        self.figure = Figure(figsize=(WIDTH, height))
        self._height = height

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes whose frame has its upper left corner there."""
        place = (left / WIDTH, 1 - (top + height) / self._height, width / WIDTH, height / self._height)
        return self.figure.add_axes(place)

    def text(self, left: float, top: float, text: str, **style: Any) -> Text:
        """Text whose line is centred on `top`."""
        settled: dict[str, Any] = {"va": "center", "fontsize": NORMAL} | style
        return self.figure.text(left / WIDTH, 1 - top / self._height, text, **settled)

    def note(self, text: str) -> None:
        """Small text at the foot, for which `NOTE_LINE` a line was left."""
        for number, line in enumerate(reversed(text.splitlines())):
            self.text(_MARGIN, self._height - NOTE_LINE * (number + 0.6), line, fontsize=SMALL, color=QUIET)

    def key(self, entries: Sequence[Entry], top: float = _MARGIN) -> None:
        """What the marks mean, in columns of one width; `key_height` tells the height."""
        column = (WIDTH - 2 * _MARGIN) / _KEY_COLUMNS
        for number, entry in enumerate(entries):
            left = _MARGIN + column * (number % _KEY_COLUMNS)
            middle = top + KEY_LINE * (number // _KEY_COLUMNS + 0.5)
            self._swatch(entry.mark, left, middle)
            self.text(left + _SWATCH + 0.1, middle, entry.text, fontsize=SMALL)

    def _swatch(self, mark: Line2D | Patch, left: float, middle: float) -> None:
        x, y, width = left / WIDTH, 1 - middle / self._height, _SWATCH / WIDTH
        if isinstance(mark, Line2D):
            points = [x + width / 2] if mark.get_linestyle() == "None" else [x, x + width / 2, x + width]
            mark.set_data(points, [y] * len(points))
            mark.set_markevery([len(points) // 2])
        else:
            height = 0.16 / self._height
            box = Rectangle((x, y - height / 2), width, height)
            box.update_from(mark)
            mark = box
        mark.set_transform(self.figure.transFigure)
        mark.set_figure(self.figure)
        self.figure.add_artist(mark)


NOTE_LINE = 0.26


def key_height(entries: Sequence[Entry]) -> float:
    """Inches from the sheet's top to the end of its key."""
    return _MARGIN + KEY_LINE * ceil(len(entries) / _KEY_COLUMNS)


def line(color: str, style: LineStyleType = "-", marker: str = "", **more: Any) -> Line2D:
    """A mark for a key, of a line or a point."""
    return Line2D([], [], color=color, linestyle=style, marker=marker, **more)


def box(color: str, **more: Any) -> Patch:
    """A mark for a key, of a bar or an area."""
    return Patch(facecolor=color, **more)


def log_scale(axes: Axes, which: Literal["x", "y"], least: float, most: float) -> None:
    """A logarithmic axis from a little below `least` to a little above `most`, its ticks plain numbers."""
    middle = (least * most) ** 0.5
    half = max((most / least) ** 0.5 * _ROOM, _LEAST_DECADES**0.5)
    low, high = middle / half, middle * half
    if which == "x":
        axes.set(xscale="log", xlim=(low, high))
    else:
        axes.set(yscale="log", ylim=(low, high))
    axis = axes.xaxis if which == "x" else axes.yaxis
    for steps in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        ticks = [tick for tick in LogLocator(subs=steps, numticks=99).tick_values(low, high) if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            break
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))


def whole_numbers(axes: Axes, most: float) -> None:
    """An x axis of counts from 0 to `most`."""
    axes.set_xlim(-0.03 * most, 1.05 * most)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def from_zero(axes: Axes, *values: pd.Series[float], room: float = 1.1) -> None:
    """A y axis from 0 to a little above the largest of the values, of which some may not be known.

    Args:
        axes: whose y axis it is.
        values: all that is drawn.
        room: the axis's end over the largest.
    """
    axes.set_ylim(0, room * max(each.fillna(0).max() for each in values))


def only_columns(axes: Axes) -> None:
    """A grid of vertical lines only, for bars that lie."""
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_color(GRID)
    axes.tick_params(axis="y", length=0)
