"""Depth: the time of a token against the context, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.roofline.breakdown import fit_depths
from reports.figures import curves
from reports.figures.data import LAUNCH, WORK, lines, own
from reports.figures.sheet import Entry, box, from_zero, line, whole_numbers
from reports.figures.style import INK, ORANGE, PALE, SKY
from reports.figures.texts import joined, label
from reports.numbers import count, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_TIME, _STREAMED, _KV, _BANDWIDTH = "tpot_s", "streamed_bytes_per_token", "kv_read_bytes", "bandwidth_measured_gbs"
_STEP = [_STREAMED, _KV, _BANDWIDTH]
_SERIES = [*WORK, "batch", "n_gen"]
_CASE = ["context", "n_depth", "n_prompt"]
_MS = 1e3
_PARTS = {"weights": SKY, "together": SKY, "overhead": PALE, "kv": ORANGE}
_POINTS: dict[str, Any] = {"fmt": "o", "color": INK, "markersize": 6, "capsize": 3, "elinewidth": 1.2}


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each engine and model that was measured at several depths."""
    kept = own(rows)
    points = lines(kept, [*_SERIES, *_CASE], _TIME, _STEP)
    groups = [group for _, group in points.groupby(_SERIES, dropna=False, sort=False) if group["context"].nunique() > 1]
    return curves.figure("depth", groups, "context", words, partial(_content, words, kept))


def _content(words: Words, kept: pd.DataFrame, shown: list[pd.DataFrame]) -> curves.Content:
    series = lines(kept, _SERIES, _TIME)[[*_SERIES, "settings"]]
    panels = [_panel(group.drop(columns="settings").merge(series, on=_SERIES), kept) for group in shown]
    return curves.Content(
        [curves.Panel(_titles(panel, words), partial(_curves, panel=panel)) for panel in panels],
        _key(panels, words),
        (words["figures.unit.context"], words["figures.unit.tpot"]),
        _alt(panels, words),
    )


@dataclass(frozen=True)
class _Panel:
    """One engine and model, by increasing context.

    Attributes:
        who: a line of the engine.
        steps: of `data.lines`: the time, its spread, and what a step reads.
        parts: seconds a token, step by step, named after their words, from the axis upwards; empty where the depths
            do not tell them apart.
    """

    who: dict[str, Any]
    steps: pd.DataFrame
    parts: dict[str, NDArray[np.float64]]

    @property
    def read_s(self) -> pd.Series[float]:
        """What reading the bytes takes at the measured bandwidth."""
        return (self.steps[_STREAMED] + self.steps[_KV]) / (1e9 * self.steps[_BANDWIDTH])


def _panel(steps: pd.DataFrame, kept: pd.DataFrame) -> _Panel:
    steps = steps.sort_values("context", ignore_index=True)
    rows = kept.merge(steps[_SERIES].head(1), on=_SERIES)
    launches = lines(rows, [*_SERIES, *_CASE, *LAUNCH], _TIME, [_KV])
    return _Panel(steps.iloc[0].to_dict(), steps, _parts(steps, launches))  # type: ignore[arg-type]


def _parts(steps: pd.DataFrame, launches: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """The fitted line, taken apart: the slope is the KV cache's, the intercept is weights and overhead."""
    told = launches.dropna(subset=[_KV])
    if told[_KV].nunique() < 2 or steps[_KV].isna().any():
        return {}
    fitted = fit_depths(told[_KV], told[_TIME])
    if not fitted.has_slope or fitted.intercept <= 0:
        return {}
    kv_s = fitted.slope * steps[_KV].to_numpy()
    intercept_s = np.full(len(steps), fitted.intercept)
    first = steps.iloc[0]
    weights_s = first[_STREAMED] / (1e9 * first[_BANDWIDTH]) if first[_BANDWIDTH] > 0 else np.nan
    if not weights_s <= fitted.intercept:
        return {"together": intercept_s, "kv": kv_s}
    weights = np.full(len(steps), weights_s)
    return {"weights": weights, "overhead": intercept_s - weights, "kv": kv_s}


def _curves(axes: Axes, panel: _Panel) -> None:
    steps = panel.steps
    contexts = steps["context"].to_numpy(float)
    if panel.parts:
        colors = [_PARTS[name] for name in panel.parts]
        axes.stackplot(contexts, *(_MS * part for part in panel.parts.values()), colors=colors)
    if panel.read_s.notna().any():
        axes.plot(contexts, _MS * panel.read_s, "--", color=INK, linewidth=1.5)
    axes.errorbar(contexts, _MS * steps[_TIME], yerr=_MS * steps["spread"].fillna(0), **_POINTS)
    from_zero(axes, _MS * (steps[_TIME] + steps["spread"].fillna(0)), _MS * panel.read_s)
    whole_numbers(axes, contexts.max())


def _titles(panel: _Panel, words: Words) -> tuple[str, str]:
    who = panel.who
    name = label(who, ["machine"], curves.TITLE_CHARACTERS - 6)
    model = joined([who["model"], who["weight_format"]], curves.TITLE_CHARACTERS - 10)
    return name, f"{model}, {words['figures.batch'].format(batch=who['batch'])}"


def _key(panels: list[_Panel], words: Words) -> list[Entry]:
    entries = [Entry(line(INK, "-", "o", linewidth=1.2), words["figures.depth.measured"])]
    if any(panel.read_s.notna().any() for panel in panels):
        entries.append(Entry(line(INK, "--"), words["figures.depth.read"]))
    drawn = {name for panel in panels for name in panel.parts}
    return entries + [
        Entry(box(color), words[f"figures.depth.{name}"]) for name, color in _PARTS.items() if name in drawn
    ]


def _alt(panels: list[_Panel], words: Words) -> str:
    first = panels[0]
    times, contexts = _MS * first.steps[_TIME], first.steps["context"]
    return words["figures.depth.alt"].format(
        n=len(panels),
        engine=label(first.who, ["machine", "model"], 80),
        first=number(times.iloc[0]),
        last=number(times.iloc[-1]),
        context=count(contexts.iloc[-1]),
    )
