"""Time to first token where a prefix of the prompt is already in the KV cache, against the prefix's length."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reports.figures import curves
from reports.figures.marks import measured, spread_entry
from reports.figures.sheet import Entry, from_zero, line, whole_numbers
from reports.figures.style import BLUE, INK, VERMILION
from reports.kv_cache.reuse import prompts
from reports.numbers import count, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_MS = 1e3


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
    measured(axes, prefixes, _MS * prompt["ttft_s"], _MS * prompt["spread"], BLUE)
    axes.plot(prefixes, _MS * prompt["least_s"], "--", color=INK, linewidth=1.4)
    full = prompt["full_s"].iloc[0]
    if full > 0:
        axes.axhline(_MS * full, color=VERMILION, linewidth=1.6)
    from_zero(axes, _MS * (prompt["ttft_s"] + prompt["spread"].fillna(0)), _MS * prompt["full_s"])
    whole_numbers(axes, float(prefixes.max()))


def _titles(prompt: pd.DataFrame, words: Words) -> tuple[str, str]:
    first = prompt.iloc[0]
    work = words["figures.kv_reuse.prompt"].format(prompt=first["context"], batch=first["batch"])
    return curves.titles(first, work, reserved=24)


def _key(shown: list[pd.DataFrame], words: Words) -> list[Entry]:
    entries = [Entry(line(BLUE, "-", "o"), words["figures.kv_reuse.reused"])]
    if any((prompt["full_s"] > 0).any() for prompt in shown):
        entries.append(Entry(line(VERMILION, "-"), words["figures.kv_reuse.full"]))
    if any(prompt["least_s"].notna().any() for prompt in shown):
        entries.append(Entry(line(INK, "--"), words["figures.ttft.ceiling"]))
    return [*entries, spread_entry(words)]


def _alt(shown: list[pd.DataFrame], words: Words) -> str:
    first, last = shown[0].iloc[0], shown[0].iloc[-1]
    return words["figures.kv_reuse.alt"].format(
        n=len(shown),
        engine=curves.engine_name(first),
        first=number(_MS * first["ttft_s"]),
        last=number(_MS * last["ttft_s"]),
        prefix=count(last["prefix"]),
    )
