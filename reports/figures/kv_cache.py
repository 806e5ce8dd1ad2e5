"""With the KV cache and without: the time of a step and of the whole text, against its length."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reports.figures import curves
from reports.figures.marks import measured
from reports.figures.sheet import Entry, from_zero, line, whole_numbers
from reports.figures.style import BLUE, INK, VERMILION
from reports.figures.texts import joined
from reports.kv_cache.lengths import WAYS, steps_of, texts
from reports.numbers import count, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_MS = 1e3
_COLORS = {"off": VERMILION, "on": BLUE}


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """Two panels for each engine: a step, and all of them."""
    return curves.figure("kv_cache", list(texts(rows)), "length", words, partial(_content, words), panels_a_group=2)


def _content(words: Words, shown: list[pd.DataFrame]) -> curves.Content:
    panels = []
    for text in shown:
        panels.append(curves.Panel(_titles(text, "step", words), partial(_steps, text=text)))
        whole = _titles(text, "total", words)
        panels.append(curves.Panel(whole, partial(_totals, text=text), words["figures.unit.total"]))
    units = (words["figures.unit.length"], words["figures.unit.step"])
    return curves.Content(panels, _key(shown, words), units, _alt(shown, words))


def _steps(axes: Axes, text: pd.DataFrame) -> None:
    """Each point is the mean of a text's steps, at their mean length."""
    steps = steps_of(text)
    middles = ((steps["first"] + steps["last"]) / 2).to_numpy(float)
    for way, color in _COLORS.items():
        axes.plot(middles, _MS * steps[way], "-o", color=color, markersize=5, linewidth=1.4)
        axes.plot(middles, _MS * steps[f"{way}_least"], "--", color=color, linewidth=1.4)
    from_zero(axes, *(_MS * steps[way] for way in WAYS))
    whole_numbers(axes, float(middles.max()))


def _totals(axes: Axes, text: pd.DataFrame) -> None:
    lengths = text["length"].to_numpy(float)
    for way, color in _COLORS.items():
        measured(axes, lengths, text[f"total_{way}"], text[f"spread_{way}"], color, markersize=5)
        axes.plot(lengths, text[f"total_least_{way}"], "--", color=color, linewidth=1.4)
    from_zero(axes, *(text[f"total_{way}"] + text[f"spread_{way}"].fillna(0) for way in WAYS))
    whole_numbers(axes, float(lengths.max()))


def _titles(text: pd.DataFrame, what: str, words: Words) -> tuple[str, str]:
    first = text.iloc[0]
    name = joined([first["backend"], first["model"], first["weight_format"]], curves.TITLE_CHARACTERS - 6)
    work = words[f"figures.kv_cache.{what}"].format(prompt=first["n_prompt"])
    return name, joined([work, first["machine"] if what == "step" else None], curves.TITLE_CHARACTERS)


def _key(shown: list[pd.DataFrame], words: Words) -> list[Entry]:
    entries = [Entry(line(color, "-", "o"), words[f"figures.kv_cache.{way}"]) for way, color in _COLORS.items()]
    if any(text[f"total_least_{way}"].notna().any() for text in shown for way in WAYS):
        entries.append(Entry(line(INK, "--"), words["figures.kv_cache.theory"]))
    return entries


def _alt(shown: list[pd.DataFrame], words: Words) -> str:
    longest = shown[0].iloc[-1]
    return words["figures.kv_cache.alt"].format(
        n=len(shown),
        engine=curves.engine_name(longest),
        length=count(longest["length"]),
        off=number(longest["total_off"]),
        on=number(longest["total_on"]),
    )
