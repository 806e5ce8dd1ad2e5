"""Decode rate against the context, a line for each format, number of heads or kind of the KV cache."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reports.figures import curves
from reports.figures.marks import measured, spread_entry
from reports.figures.sheet import Entry, from_zero, line, whole_numbers
from reports.figures.style import INK, series_styles
from reports.kv_cache.depths import VARIANT, depths, engines, variant
from reports.numbers import count, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_RATE, _CEILING = "decode_tok_s", "decode_ceiling_tok_s"


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each engine and model whose KV cache was varied."""
    found = [group for group in engines(depths(rows)) if group["context"].nunique() > 1]
    return curves.figure("kv_rates", found, "context", words, partial(_content, words))


def _content(words: Words, chosen: list[pd.DataFrame]) -> curves.Content:
    shown = [group.assign(name=[variant(each, words) for each in group.to_dict("records")]) for group in chosen]
    styles = series_styles(name for group in shown for name in group["name"])
    return curves.Content(
        [curves.Panel(_titles(group, words), partial(_curves, group=group, styles=styles)) for group in shown],
        _key(shown, styles, words),
        (words["figures.unit.context"], words["figures.unit.decode"]),
        _alt(shown, words),
    )


def _curves(axes: Axes, group: pd.DataFrame, styles: dict[str, tuple[str, str]]) -> None:
    for name, (color, marker) in styles.items():
        one = group[group["name"] == name].sort_values("context")
        contexts = one["context"].to_numpy(float)
        measured(axes, contexts, one[_RATE], one["spread"], color, marker)
        axes.plot(contexts, one[_CEILING], "--", color=color, linewidth=1.2)
    from_zero(axes, group[_RATE] + group["spread"].fillna(0), group[_CEILING])
    whole_numbers(axes, float(group["context"].max()))


def _titles(group: pd.DataFrame, words: Words) -> tuple[str, str]:
    first = group.iloc[0]
    return curves.titles(first, words["figures.batch"].format(batch=first["batch"]), reserved=10, model="base")


def _key(shown: list[pd.DataFrame], styles: dict[str, tuple[str, str]], words: Words) -> list[Entry]:
    entries = [Entry(line(color, "-", marker), name) for name, (color, marker) in styles.items()]
    if any(group[_CEILING].notna().any() for group in shown):
        entries.append(Entry(line(INK, "--"), words["figures.kv_rates.ceiling"]))
    return [*entries, spread_entry(words)]


def _alt(shown: list[pd.DataFrame], words: Words) -> str:
    group = shown[0]
    deepest = group[group["context"] == group["context"].max()]
    first = deepest.iloc[0]
    return words["figures.kv_rates.alt"].format(
        n=len(shown),
        engine=curves.engine_name(first, "base"),
        variants=len(group[VARIANT].drop_duplicates()),
        first=number(deepest[_RATE].min()),
        last=number(deepest[_RATE].max()),
        context=count(first["context"]),
    )
