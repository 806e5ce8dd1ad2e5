"""The marks that many figures have: measured points with their spread, and what a key says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.figures.sheet import Entry, line
from reports.figures.style import INK

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from reports.words import Words

_MEASURED: dict[str, Any] = {"markersize": 6, "linewidth": 1.4, "capsize": 3, "elinewidth": 1.2}


def measured(
    axes: Axes,
    x: NDArray[Any],
    y: pd.Series[float],
    spread: pd.Series[float],
    color: str,
    marker: str = "o",
    **style: Any,
) -> None:
    """Points on a line, each with its spread where that is known."""
    axes.errorbar(x, y, yerr=spread.fillna(0), fmt=f"-{marker}", color=color, **(_MEASURED | style))


def spread_entry(words: Words) -> Entry:
    """What the bars across a point are."""
    return Entry(line(INK, marker="|", linewidth=1.2), words["figures.spread"])
