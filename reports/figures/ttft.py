"""Time to first token against the prompt's length, and what its computation takes at best."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reports.figures import curves
from reports.figures.data import WORK, lines, own
from reports.figures.marks import measured, spread_entry
from reports.figures.sheet import Entry, line, log_scale
from reports.figures.style import INK, engine_colors
from reports.figures.texts import joined, short
from reports.numbers import count, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_TIME, _CEILING = "ttft_s", "prefill_ceiling_tok_s"
_PANEL = ["machine", "model", "weight_format", "n_depth", "batch"]
_SERIES = [*WORK, "n_depth", "batch"]
_MS = 1e3


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each machine and model with an engine that was given several lengths, a line for each engine."""
    found = lines(own(rows), [*_SERIES, "n_prompt", "n_gen"], _TIME, [_CEILING])
    found = found[found["n_prompt"] > 0].sort_values("n_prompt", kind="stable")
    lengths = found.groupby(_SERIES, dropna=False)["n_prompt"].transform("nunique")
    groups = [panel for _, panel in found[lengths > 1].groupby(_PANEL, dropna=False, sort=False)]
    groups.sort(key=lambda panel: panel["n_depth"].iloc[0])
    colors = engine_colors(found["backend"])
    return curves.figure("ttft", groups, "n_prompt", words, partial(_content, words, colors))


def _content(words: Words, colors: dict[str, str], shown: list[pd.DataFrame]) -> curves.Content:
    return curves.Content(
        [curves.Panel(_titles(panel, words), partial(_curves, panel=panel, colors=colors)) for panel in shown],
        _key(shown, colors, words),
        (words["figures.unit.prompt"], words["figures.unit.ttft"]),
        _alt(shown, words),
    )


def _least_s(panel: pd.DataFrame) -> pd.Series[float]:
    """The time of the prompt at its ceiling."""
    return panel["batch"].astype("float64") * panel["n_prompt"].astype("float64") / panel[_CEILING]


def _curves(axes: Axes, panel: pd.DataFrame, colors: dict[str, str]) -> None:
    ceilings = panel.assign(least_ms=_MS * _least_s(panel)).dropna(subset=["least_ms"])
    for backend, one in ceilings.groupby("backend", sort=False):
        best = one.groupby("n_prompt")["least_ms"].min()
        axes.plot(best.index.to_numpy(float), best, "--", color=colors[str(backend)], linewidth=1.4)
    for _, one in panel.groupby([*_SERIES, "n_gen"], dropna=False, sort=False):
        color = colors[one["backend"].iloc[0]]
        measured(axes, one["n_prompt"].to_numpy(float), _MS * one[_TIME], _MS * one["spread"], color)
    times = [*(_MS * panel[_TIME]), *(_MS * (panel[_TIME] + panel["spread"].fillna(0))), *ceilings["least_ms"]]
    log_scale(axes, "x", panel["n_prompt"].min(), panel["n_prompt"].max())
    log_scale(axes, "y", min(times), max(times))


def _titles(panel: pd.DataFrame, words: Words) -> tuple[str, str]:
    first = panel.iloc[0]
    model = joined([first["model"], first["weight_format"]], curves.TITLE_CHARACTERS - 6)
    work = words["figures.after"].format(depth=count(first["n_depth"]), batch=first["batch"])
    return model, f"{short(first['machine'], curves.TITLE_CHARACTERS - 20)}, {work}"


def _key(panels: list[pd.DataFrame], colors: dict[str, str], words: Words) -> list[Entry]:
    backends = dict.fromkeys(str(backend) for panel in panels for backend in panel["backend"])
    entries = [Entry(line(colors[backend], "-", "o"), short(backend, 30)) for backend in backends]
    if any(panel[_CEILING].notna().any() for panel in panels):
        entries.append(Entry(line(INK, "--"), words["figures.ttft.ceiling"]))
    return [*entries, spread_entry(words)]


def _alt(panels: list[pd.DataFrame], words: Words) -> str:
    last = panels[0].iloc[-1]
    return words["figures.ttft.alt"].format(
        n=len(panels),
        engine=curves.engine_name(last),
        last=number(_MS * last[_TIME]),
        prompt=count(last["n_prompt"]),
    )
