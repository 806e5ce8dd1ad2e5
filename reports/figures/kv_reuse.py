"""Time to first token where a prefix of the prompt is already in the KV cache, against the prefix's length."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from reports.figures import curves
from reports.figures.sheet import Entry, line, whole_numbers
from reports.figures.style import BLUE, INK, VERMILION
from reports.figures.texts import joined
from reports.kv_cache.reuse import prompts
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_MS = 1e3
_POINTS: dict[str, Any] = {"fmt": "-o", "markersize": 6, "linewidth": 1.4, "capsize": 3, "elinewidth": 1.2}


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each engine and prompt."""
    return curves.figure("kv_reuse", prompts(rows), "prefix", words, partial(_content, words))


def _content(words: Words, shown: list[pd.DataFrame]) -> curves.Content:
    return curves.Content(
        [curves.Panel(_titles(prompt, words), partial(_curves, prompt=prompt)) for prompt in shown],
        _key(shown, words),
        (words["figures.unit.prefix"], words["figures.unit.ttft"]),
        _alt(shown, words),
    )


def _curves(axes: Axes, prompt: pd.DataFrame) -> None:
    prefixes = prompt["prefix"].to_numpy(float)
    axes.errorbar(prefixes, _MS * prompt["ttft_s"], yerr=_MS * prompt["spread"].fillna(0), color=BLUE, **_POINTS)
    axes.plot(prefixes, _MS * prompt["least_s"], "--", color=INK, linewidth=1.4)
    full = prompt["full_s"].iloc[0]
    if full > 0:
        axes.axhline(_MS * full, color=VERMILION, linewidth=1.6)
    highest = (prompt["ttft_s"] + prompt["spread"].fillna(0)).max()
    axes.set_ylim(0, 1.1 * _MS * max(highest, prompt["full_s"].fillna(0).max()))
    whole_numbers(axes, float(prefixes.max()))


def _titles(prompt: pd.DataFrame, words: Words) -> tuple[str, str]:
    first = prompt.iloc[0]
    name = joined([first["backend"], first["machine"]], curves.TITLE_CHARACTERS - 6)
    model = joined([first["model"], first["weight_format"]], curves.TITLE_CHARACTERS - 24)
    return name, f"{model}, {words['figures.kv_reuse.prompt'].format(prompt=first['context'], batch=first['batch'])}"


def _key(shown: list[pd.DataFrame], words: Words) -> list[Entry]:
    entries = [Entry(line(BLUE, "-", "o"), words["figures.kv_reuse.reused"])]
    if any((prompt["full_s"] > 0).any() for prompt in shown):
        entries.append(Entry(line(VERMILION, "-"), words["figures.kv_reuse.full"]))
    if any(prompt["least_s"].notna().any() for prompt in shown):
        entries.append(Entry(line(INK, "--"), words["figures.ttft.ceiling"]))
    return [*entries, Entry(line(INK, marker="|", linewidth=1.2), words["figures.spread"])]


def _alt(shown: list[pd.DataFrame], words: Words) -> str:
    first, last = shown[0].iloc[0], shown[0].iloc[-1]
    return words["figures.kv_reuse.alt"].format(
        n=len(shown),
        engine=joined([first["backend"], first["machine"], first["model"]], 80),
        first=number(_MS * first["ttft_s"]),
        last=number(_MS * last["ttft_s"]),
        prefix=f"{int(last['prefix']):,}",
    )
