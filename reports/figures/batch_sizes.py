"""Several sequences at once: the decode rate, and the bytes of weights and of KV cache that a step reads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reports.figures import curves
from reports.figures.marks import measured, spread_entry
from reports.figures.sheet import Entry, line, log_scale
from reports.figures.style import BLUE, INK, ORANGE, SKY
from reports.kv_cache.batch import batches
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn, Missing
    from reports.words import Words

_MB = 1e-6
_RATE, _CEILING = "decode_tok_s", "decode_ceiling_tok_s"
_WEIGHTS, _KV = "streamed_bytes_per_token", "kv_read_bytes"


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """Two panels for each engine and context: the rate, and the bytes."""
    return curves.figure("batch_sizes", batches(rows), "batch", words, partial(_content, words), panels_a_group=2)


def _content(words: Words, shown: list[pd.DataFrame]) -> curves.Content:
    panels = []
    for series in shown:
        titles = _titles(series, words)
        panels.append(curves.Panel(titles, partial(_rates, series=series)))
        panels.append(curves.Panel(titles, partial(_bytes, series=series), words["figures.unit.step_bytes"]))
    units = (words["figures.unit.batch"], words["figures.unit.decode"])
    return curves.Content(panels, _key(words), units, _alt(shown, words))


def _rates(axes: Axes, series: pd.DataFrame) -> None:
    batch = series["batch"].to_numpy(float)
    measured(axes, batch, series[_RATE], series["spread"], BLUE)
    axes.plot(batch, series[_CEILING], "--", color=INK, linewidth=1.4)
    rates = [*series[_RATE], *series[_CEILING].dropna()]
    log_scale(axes, "x", batch.min(), batch.max())
    log_scale(axes, "y", min(rates), max(rates))


def _bytes(axes: Axes, series: pd.DataFrame) -> None:
    batch = series["batch"].to_numpy(float)
    for column, color in ((_WEIGHTS, SKY), (_KV, ORANGE)):
        axes.plot(batch, _MB * series[column], "-o", color=color, markersize=6, linewidth=1.6)
    log_scale(axes, "x", batch.min(), batch.max())
    told = [_MB * n_bytes for n_bytes in (*series[_WEIGHTS], *series[_KV]) if n_bytes > 0]
    if told:
        log_scale(axes, "y", min(told), max(told))


def _titles(series: pd.DataFrame, words: Words) -> tuple[str, str]:
    first = series.iloc[0]
    return curves.titles(first, words["figures.batch_sizes.context"].format(context=first["context"]), reserved=18)


def _key(words: Words) -> list[Entry]:
    return [
        Entry(line(BLUE, "-", "o"), words["figures.batch_sizes.rate"]),
        Entry(line(INK, "--"), words["figures.batch_sizes.ceiling"]),
        spread_entry(words),
        Entry(line(SKY, "-", "o"), words["figures.batch_sizes.weights"]),
        Entry(line(ORANGE, "-", "o"), words["figures.batch_sizes.kv"]),
    ]


def _alt(shown: list[pd.DataFrame], words: Words) -> str:
    first, last = shown[0].iloc[0], shown[0].iloc[-1]
    return words["figures.batch_sizes.alt"].format(
        n=len(shown),
        engine=curves.engine_name(first),
        first=number(first[_RATE]),
        last=number(last[_RATE]),
        batch=last["batch"],
    )
