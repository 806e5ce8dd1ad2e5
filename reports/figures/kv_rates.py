"""Decode rate against the context, a line for each format, number of heads or kind of the KV cache."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from reports.figures import curves
from reports.figures.sheet import Entry, line, whole_numbers
from reports.figures.style import INK, MARKERS, SERIES
from reports.figures.texts import joined
from reports.kv_cache.depths import VARIANT, depths, engines, variant
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_RATE, _CEILING = "decode_tok_s", "decode_ceiling_tok_s"
_POINTS: dict[str, Any] = {"markersize": 6, "linewidth": 1.4, "capsize": 3, "elinewidth": 1.2}
_MOST_VARIANTS = len(SERIES)


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each engine and model whose KV cache was varied."""
    found = [group for group in engines(depths(rows)) if group["context"].nunique() > 1]
    return curves.figure("kv_rates", found, "context", words, partial(_content, words))


def _content(words: Words, chosen: list[pd.DataFrame]) -> curves.Content:
    shown = [group.assign(name=[variant(each, words) for each in group.to_dict("records")]) for group in chosen]
    names = list(dict.fromkeys(name for group in shown for name in group["name"]))[:_MOST_VARIANTS]
    styles = {name: (SERIES[place], MARKERS[place]) for place, name in enumerate(names)}
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
        axes.errorbar(
            contexts, one[_RATE], yerr=one["spread"].fillna(0), fmt=f"-{marker}", color=color, **_POINTS
        )  # fmt: skip
        axes.plot(contexts, one[_CEILING], "--", color=color, linewidth=1.2)
    highest = (group[_RATE] + group["spread"].fillna(0)).max()
    axes.set_ylim(0, 1.1 * max(highest, group[_CEILING].max() if group[_CEILING].notna().any() else 0))
    whole_numbers(axes, float(group["context"].max()))


def _titles(group: pd.DataFrame, words: Words) -> tuple[str, str]:
    first = group.iloc[0]
    name = joined([first["backend"], first["machine"]], curves.TITLE_CHARACTERS - 6)
    model = joined([first["base"], first["weight_format"]], curves.TITLE_CHARACTERS - 10)
    return name, f"{model}, {words['figures.batch'].format(batch=first['batch'])}"


def _key(shown: list[pd.DataFrame], styles: dict[str, tuple[str, str]], words: Words) -> list[Entry]:
    entries = [Entry(line(color, "-", marker), name) for name, (color, marker) in styles.items()]
    if any(group[_CEILING].notna().any() for group in shown):
        entries.append(Entry(line(INK, "--"), words["figures.kv_rates.ceiling"]))
    return [*entries, Entry(line(INK, marker="|", linewidth=1.2), words["figures.spread"])]


def _alt(shown: list[pd.DataFrame], words: Words) -> str:
    group = shown[0]
    deepest = group[group["context"] == group["context"].max()]
    first = deepest.iloc[0]
    return words["figures.kv_rates.alt"].format(
        n=len(shown),
        engine=joined([first["backend"], first["machine"], first["base"]], 80),
        variants=len(group[VARIANT].drop_duplicates()),
        first=number(deepest[_RATE].min()),
        last=number(deepest[_RATE].max()),
        context=f"{int(first['context']):,}",
    )
