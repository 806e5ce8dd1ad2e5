"""Speed against quality loss: the decode rate of a model's formats against how far their answers moved."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from reports.figures import curves
from reports.figures.labels import name_points
from reports.figures.marks import spread_entry
from reports.figures.sheet import Entry, from_zero, line, log_scale
from reports.figures.style import INK, engine_colors
from reports.figures.texts import joined, short
from reports.numbers import count, number
from reports.quality import KL, formats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_RATE = "decode_tok_s"
_POINTS: dict[str, Any] = {"fmt": "o", "markersize": 7, "capsize": 3, "elinewidth": 1.2}
_LONGEST_NAME = 22


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each machine and trained model of which several formats were measured."""
    return curves.figure("quality", formats(rows), "weight_format", words, partial(_content, words))


def _content(words: Words, shown: list[pd.DataFrame]) -> curves.Content:
    colors = engine_colors(backend for group in shown for backend in group["backend"])
    return curves.Content(
        [curves.Panel(_titles(group, words), partial(_points, group=group, colors=colors)) for group in shown],
        _key(shown, colors, words),
        (words["figures.unit.kl"], words["figures.unit.decode"]),
        _alt(shown, words),
    )


def _points(axes: Axes, group: pd.DataFrame, colors: dict[str, str]) -> None:
    """A point for each quantised format; an unquantised one is a line, since no logarithm shows its distance of 0."""
    judged = group.dropna(subset=[KL])
    for backend, rate in _unquantised(group)[["backend", _RATE]].to_numpy():
        axes.axhline(rate, linestyle="--", color=colors[backend], linewidth=1.4)
    for backend, one in judged.groupby("backend", sort=False):
        axes.errorbar(one[KL], one[_RATE], yerr=one["spread"].fillna(0), color=colors[str(backend)], **_POINTS)
    log_scale(axes, "x", judged[KL].min(), judged[KL].max())
    from_zero(axes, group[_RATE] + group["spread"].fillna(0), room=1.15)  # for the names
    told = zip(judged["weight_format"], judged["settings"], strict=True)
    names = [joined([form, settings], _LONGEST_NAME) for form, settings in told]
    name_points(axes, list(zip(judged[KL], judged[_RATE], strict=True)), names)


def _unquantised(group: pd.DataFrame) -> pd.DataFrame:
    """The fastest of each engine."""
    plain = group[group["weight_format"].isin(["f32", "f16", "bf16"])]
    return plain.sort_values(_RATE, ascending=False).drop_duplicates("backend")


def _titles(group: pd.DataFrame, words: Words) -> tuple[str, str]:
    first = group.iloc[0]
    context = first["n_depth"] + first["n_prompt"]
    work = words["figures.quality.work"].format(context=count(context), batch=first["batch"])
    machine = short(first["machine"], curves.TITLE_CHARACTERS - 26)
    return short(first["model"], curves.TITLE_CHARACTERS - 6), f"{machine}, {work}"


def _key(shown: list[pd.DataFrame], colors: dict[str, str], words: Words) -> list[Entry]:
    backends = dict.fromkeys(str(backend) for group in shown for backend in group.dropna(subset=[KL])["backend"])
    entries = [Entry(line(colors[backend], "None", "o"), short(backend, 30)) for backend in backends]
    if any(len(_unquantised(group)) for group in shown):
        entries.append(Entry(line(INK, "--"), words["figures.quality.unquantised"]))
    return [*entries, spread_entry(words)]


def _alt(shown: list[pd.DataFrame], words: Words) -> str:
    judged = shown[0].dropna(subset=[KL])
    best, fastest = judged.iloc[judged[KL].argmin()], judged.iloc[judged[_RATE].argmax()]
    return words["figures.quality.alt"].format(
        n=len(shown),
        who=joined([best["machine"], best["model"]], 60),
        best=joined([best["backend"], best["weight_format"]], 40),
        best_rate=number(best[_RATE]),
        best_kl=number(best[KL]),
        fastest=joined([fastest["backend"], fastest["weight_format"]], 40),
        fastest_rate=number(fastest[_RATE]),
        fastest_kl=number(fastest[KL]),
    )
