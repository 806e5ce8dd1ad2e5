"""Bytes of the KV cache against the tokens that it was asked to hold, beside the formula."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reports.figures import curves
from reports.figures.sheet import Entry, from_zero, line, whole_numbers
from reports.figures.style import INK, series_styles
from reports.kv_cache.memory import caches
from reports.numbers import count, number
from reports.summary import SUBJECT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_MB = 1e-6


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each engine and model whose cache had several sizes."""
    found = [group for _, group in caches(rows).groupby(SUBJECT, sort=False) if group["tokens"].nunique() > 1]
    return curves.figure("kv_memory", found, "tokens", words, partial(_content, words))


def _content(words: Words, shown: list[pd.DataFrame]) -> curves.Content:
    styles = series_styles(name for group in shown for name in group["kv_k_format"])
    key = [Entry(line(color, "", marker), name) for name, (color, marker) in styles.items()]
    return curves.Content(
        [curves.Panel(curves.titles(group.iloc[0]), partial(_points, group=group, styles=styles)) for group in shown],
        [*key, Entry(line(INK, "--"), words["figures.kv_memory.formula"])],
        (words["figures.unit.tokens"], words["figures.unit.cache"]),
        _alt(shown, words),
    )


def _points(axes: Axes, group: pd.DataFrame, styles: dict[str, tuple[str, str]]) -> None:
    """What lies above its format's line is room that the engine made beyond what was asked."""
    for name, (color, marker) in styles.items():
        one = group[group["kv_k_format"] == name]
        axes.plot(one["tokens"].to_numpy(float), _MB * one["held"], marker, color=color, markersize=6)
        axes.plot(one["tokens"].to_numpy(float), _MB * one["asked_bytes"], "--", color=color, linewidth=1.2)
    from_zero(axes, _MB * group["held"])
    whole_numbers(axes, float(group["tokens"].max()))


def _alt(shown: list[pd.DataFrame], words: Words) -> str:
    largest = shown[0].iloc[-1]
    return words["figures.kv_memory.alt"].format(
        n=len(shown),
        engine=curves.engine_name(largest),
        held=number(_MB * largest["held"]),
        tokens=count(largest["tokens"]),
    )
