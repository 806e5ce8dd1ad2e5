"""Jitter: how unevenly tokens come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reports.figures import bars
from reports.figures.contract import Missing
from reports.figures.data import WORK, lines, own
from reports.figures.sheet import Entry, line, log_scale
from reports.figures.style import GREY, INK, ORANGE, QUIET, VERMILION
from reports.figures.texts import label
from reports.numbers import number
from results.schema import CASE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn
    from reports.words import Words

_MARKS: dict[str, dict[str, Any]] = {
    "p50": {"color": INK, "marker": "o", "markersize": 8},
    "p90": {"color": QUIET, "marker": "|", "markersize": 15, "markeredgewidth": 1.8},
    "p99": {"color": ORANGE, "marker": "D", "markersize": 8},
    "max": {"color": VERMILION, "marker": ">", "markersize": 9},
}
_COLUMNS = {name: f"itl_{name}_s" for name in _MARKS}
_MS = 1e3


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """Of each model the case that most engines did, as in the headline; the longest interval is of all repetitions."""
    percentiles = [_COLUMNS[name] for name in ("p50", "p90", "p99")]
    found = lines(own(rows), [*WORK, *CASE, "context"], "decode_tok_s", percentiles, [_COLUMNS["max"]])
    found = found[(found[[*_COLUMNS.values()]] > 0).all(axis=1)]
    if found.empty:
        return Missing(words["figures.jitter.title"], words["figures.jitter.missing"])
    shown, panels, n_left_out = bars.headline(found, words)
    content = bars.Content(
        panels,
        _marks,
        [Entry(line(style="None", **mark), words[f"figures.jitter.{name}"]) for name, mark in _MARKS.items()],
        words["figures.unit.interval"],
        [bars.Cells(words["figures.jitter.worst"], 1.3, [[_worst(row) for row in panel.rows] for panel in panels])],
        n_left_out,
        _alt(shown, words),
    )
    return bars.figure("jitter", words, content)


def _marks(axes: Axes, found: pd.DataFrame) -> None:
    rows = np.arange(len(found))
    ms = {name: _MS * found[column].to_numpy(float) for name, column in _COLUMNS.items()}
    axes.hlines(rows, ms["p50"], ms["max"], color=GREY, linewidth=1.4, zorder=1)
    for name, mark in _MARKS.items():
        axes.plot(ms[name], rows, linestyle="None", **mark)
    log_scale(axes, "x", min(ms["p50"]), max(ms["max"]))


def _worst(row: dict[str, Any]) -> str:
    return f"{row[_COLUMNS['max']] / row[_COLUMNS['p50']]:.1f} ×"


def _alt(found: pd.DataFrame, words: Words) -> str:
    widest = found.iloc[(found[_COLUMNS["max"]] / found[_COLUMNS["p50"]]).argmax()].to_dict()
    return words["figures.jitter.alt"].format(
        n=len(found),
        engine=label(widest, ["machine", "model"], 80),
        p50=number(_MS * widest[_COLUMNS["p50"]]),
        longest=number(_MS * widest[_COLUMNS["max"]]),
    )
