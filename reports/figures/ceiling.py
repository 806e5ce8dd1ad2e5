"""Decode against the ceiling: each measured rate as a bar, and how far the memory would let it reach."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.figures import bars
from reports.figures.contract import Missing
from reports.figures.data import WORK, lines, own
from reports.figures.marks import spread_entry
from reports.figures.sheet import Entry, box, line
from reports.figures.style import INK, QUIET, engine_colors
from reports.figures.texts import short
from reports.numbers import number, number_with, percent
from results.amounts import about
from results.schema import CASE

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn
    from reports.words import Words

_RATE, _CEILING, _SPEC = "decode_tok_s", "decode_ceiling_tok_s", "decode_ceiling_spec_tok_s"
_VENDOR: dict[str, Any] = {"marker": "D", "markersize": 7, "markeredgewidth": 1.4, "markerfacecolor": "none"}

Row = dict[str, Any]


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """Of each model the case that most engines did, as `reports.headline` chooses it; at most `bars.MOST_BARS`."""
    found = _lines(rows)
    if found.empty:
        return Missing(words["figures.ceiling.title"], words["figures.ceiling.missing"])
    shown, panels, n_left_out = bars.headline(found, words)
    colors = engine_colors(shown["backend"])
    told = [column for column in ("room", "tokens_per_joule") if shown[column].notna().any()]
    content = bars.Content(
        panels,
        partial(_bars, colors=colors),
        _key(shown, colors, words),
        words["figures.unit.decode"],
        _columns(panels, words),
        n_left_out,
        _alt(shown, words),
        [words[f"figures.ceiling.{column}_note"] for column in told],
    )
    return bars.figure("ceiling", words, content)


def _lines(rows: pd.DataFrame) -> pd.DataFrame:
    """With `mbu`; `room`, tokens whose KV cache the memory holds beside the weights; `tokens_per_joule`."""
    memory = ["device_memory_bytes", "weight_bytes", "kv_bytes_per_token", "n_gpu_layers"]
    found = lines(own(rows), [*WORK, *CASE, "context"], _RATE, [_CEILING, _SPEC, *memory, "energy_j"])
    whole = found["n_gpu_layers"].isna()  # a number that was asked for may leave a part elsewhere; all of them are -1
    free = (found["device_memory_bytes"] - found["weight_bytes"]).where(whole).clip(lower=0)
    batch, generated = found["batch"].astype("float64"), found["n_gen"].astype("float64")
    a_token = found["kv_bytes_per_token"] * batch
    return found.assign(
        mbu=found[_RATE] / found[_CEILING],
        room=free / a_token.where(a_token > 0),
        tokens_per_joule=batch * generated / found["energy_j"].where(found["energy_j"] > 0),
    )


def _columns(panels: list[bars.Panel], words: Words) -> list[bars.Cells]:
    """What stands beside the bars, column by column where any line tells it."""
    cells: list[tuple[str, str, float, Callable[[Row], str]]] = [
        ("rate", _RATE, 1.35, lambda row: number_with(row[_RATE], row["spread"])),
        ("mbu", "mbu", 0.75, lambda row: f"{percent(row['mbu'])} %{'!' if row['mbu'] > 1 else ''}"),
        ("room", "room", 1.15, lambda row: about(int(row["room"]))),
        ("tokens_per_joule", "tokens_per_joule", 0.85, lambda row: number(row["tokens_per_joule"])),
    ]
    columns = []
    for key, column, width, text in cells:
        texts = [[text(row) if math.isfinite(row[column]) else "" for row in panel.rows] for panel in panels]
        if any(map(any, texts)):
            columns.append(bars.Cells(words[f"figures.ceiling.{key}"], width, texts))
    return columns


def _bars(axes: Axes, found: pd.DataFrame, colors: dict[str, str]) -> None:
    rows = np.arange(len(found))
    rates = found[_RATE].to_numpy(float)
    edges = [colors[backend] for backend in found["backend"]]
    faces = ["none" if refused else color for refused, color in zip(found["refused"], edges, strict=True)]
    axes.barh(rows, rates, bars.THICKNESS, color=faces, edgecolor=edges, linewidth=1.2)
    spread = found["spread"].fillna(0).to_numpy(float)
    axes.errorbar(rates, rows, xerr=spread, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    axes.plot(found[_CEILING].to_numpy(float), rows, linestyle="None", color=INK, **bars.TICK)
    axes.plot(found[_SPEC].to_numpy(float), rows, linestyle="None", color=QUIET, **_VENDOR)
    axes.set_xlim(0, 1.05 * np.nanmax([*(rates + spread), *found[_CEILING], *found[_SPEC]]))


def _key(found: pd.DataFrame, colors: dict[str, str], words: Words) -> list[Entry]:
    entries = [Entry(box(colors[backend]), short(backend, 30)) for backend in found["backend"].unique()]
    if found["spread"].notna().any():
        entries.append(spread_entry(words))
    if found[_CEILING].notna().any():
        entries.append(Entry(line(INK, "None", **bars.TICK), words["figures.ceiling.measured"]))
    if found[_SPEC].notna().any():
        entries.append(Entry(line(QUIET, "None", **_VENDOR), words["figures.ceiling.vendor"]))
    if found["refused"].any():
        entries.append(Entry(box("none", edgecolor=INK), words["figures.refused"]))
    return entries


def _alt(found: pd.DataFrame, words: Words) -> str:
    best = found.sort_values("mbu", ascending=False, na_position="last").iloc[0]
    text = words["figures.ceiling.alt"].format(n=len(found))
    if math.isnan(best["mbu"]):
        return text
    return f"{text} " + words["figures.ceiling.alt_best"].format(
        engine=short(best["backend"], 30),
        machine=short(best["machine"], 40),
        model=short(best["model"], 40),
        rate=number(best[_RATE]),
        mbu=percent(best["mbu"]),
    )
