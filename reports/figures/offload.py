"""Offload: the decode rate against the layers off the host, what the memories allow, and what the two ends predict."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING

from reports import two_tiers
from reports.figures import curves
from reports.figures.data import WORK, lines, own
from reports.figures.marks import measured, spread_entry
from reports.figures.sheet import Entry, from_zero, line, whole_numbers
from reports.figures.style import INK, SERIES
from reports.numbers import count, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_RATE, _CEILING, _LAYERS = "decode_tok_s", "decode_ceiling_tok_s", "gpu_layers_effective"
_PREDICTED = "predicted_tok_s"
_PANEL = [*(column for column in WORK if column != "asked"), "but_layers", "batch", "n_gen"]
_CURVE = [*_PANEL, "context", "n_depth"]
_MOST_CONTEXTS = 6
_LEAST_POINTS = 3  # between two ends


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each engine and model that was placed in several ways, a line for each context."""
    kept = two_tiers.with_read_bytes(own(rows))
    requests = {text: _but_layers(text) for text in kept["asked"].unique()}
    # Of one sweep the device is "cpu" where no layer is off the host.
    kept = kept.assign(but_layers=kept["asked"].map(requests), device=None).dropna(subset=[_LAYERS])
    by = [*_PANEL, "asked", "context", "n_depth", _LAYERS]
    found = lines(kept, by, _RATE, [_CEILING, two_tiers.HOST, two_tiers.OFF_HOST])
    found = found.sort_values(_LAYERS, kind="stable")
    found = _with_prediction(found)
    places = found.groupby(_CURVE, dropna=False)[_LAYERS].transform("nunique")
    groups = [panel for _, panel in found[places > 1].groupby(_PANEL, dropna=False, sort=False)]
    return curves.figure("offload", groups, _LAYERS, words, partial(_content, words))


def _content(words: Words, chosen: list[pd.DataFrame]) -> curves.Content:
    shown = [_fewest_contexts(panel) for panel in chosen]
    contexts = sorted({context for panel in shown for context in panel["context"]})
    colors = {context: SERIES[number % len(SERIES)] for number, context in enumerate(contexts)}
    return curves.Content(
        [curves.Panel(_titles(panel, words), partial(_curves, panel=panel, colors=colors)) for panel in shown],
        _key(shown, colors, words),
        (words["figures.unit.layers"], words["figures.unit.decode"]),
        _alt(shown, words),
    )


def _with_prediction(found: pd.DataFrame) -> pd.DataFrame:
    """The lines with the rate that their two ends predict, NaN where these tell none."""
    found = found.assign(step_s=found["batch"] / found[_RATE], **{_PREDICTED: math.nan})
    for _, one in found.groupby(_CURVE, dropna=False, sort=False):
        if len(one) >= _LEAST_POINTS and (speeds := two_tiers.speeds_of(one)):
            found.loc[one.index, _PREDICTED] = one["batch"] / two_tiers.predicted_s(one, speeds)
    return found


def _but_layers(asked: str) -> str:
    """A request without its number of layers."""
    request = {name: value for name, value in json.loads(asked).items() if name != "n_gpu_layers"}
    return json.dumps(request, sort_keys=True)


def _fewest_contexts(panel: pd.DataFrame) -> pd.DataFrame:
    """The shortest contexts, as many as can be told apart."""
    return panel[panel["context"].isin(sorted(panel["context"].unique())[:_MOST_CONTEXTS])]


def _curves(axes: Axes, panel: pd.DataFrame, colors: dict[int, str]) -> None:
    for _, one in panel.groupby(["context", "n_depth"], sort=False):
        layers, color = one[_LAYERS].to_numpy(float), colors[one["context"].iloc[0]]
        axes.plot(layers, one[_CEILING], "--", color=color, linewidth=1.4)
        axes.plot(layers, one[_PREDICTED], ":x", color=color, linewidth=1.6, markersize=7)
        measured(axes, layers, one[_RATE], one["spread"], color)
    from_zero(axes, panel[_RATE] + panel["spread"].fillna(0), panel[_CEILING], panel[_PREDICTED])
    whole_numbers(axes, float(panel[_LAYERS].max()))


def _titles(panel: pd.DataFrame, words: Words) -> tuple[str, str]:
    first = panel.iloc[0]
    return curves.titles(first, words["figures.batch"].format(batch=first["batch"]), reserved=10)


def _key(panels: list[pd.DataFrame], colors: dict[int, str], words: Words) -> list[Entry]:
    text = words["figures.offload.measured"]
    entries = [Entry(line(color, "-", "o"), text.format(context=count(n))) for n, color in colors.items()]
    if any(panel[_CEILING].notna().any() for panel in panels):
        entries.append(Entry(line(INK, "--"), words["figures.offload.ceiling"]))
    if any(panel[_PREDICTED].notna().any() for panel in panels):
        entries.append(Entry(line(INK, ":", "x"), words["figures.offload.predicted"]))
    return [*entries, spread_entry(words)]


def _alt(panels: list[pd.DataFrame], words: Words) -> str:
    first, last = panels[0].iloc[0], panels[0].iloc[-1]
    return words["figures.offload.alt"].format(
        n=len(panels),
        engine=curves.engine_name(first),
        first=number(first[_RATE]),
        last=number(last[_RATE]),
    )
