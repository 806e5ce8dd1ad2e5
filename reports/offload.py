"""What an offload sweep found: a table of its points, the fastest, each memory's speed, and where the time goes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from reports import two_tiers
from reports.numbers import EMPTY, gigabytes, number
from reports.two_tiers import HOST, OFF_HOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from reports.words import Words

_LAYERS = "gpu_layers_effective"
_HEADINGS = ("layers", "host_gb", "off_host_gb", "ms", "rate", "ceiling", "predicted_ms", "error")
_WIDTH = 100


@dataclass(frozen=True)
class Point:
    """One number of layers off the host, as `gpu_layers_effective` counts; NaN where a number is not known."""

    layers: int
    tok_s: float  # the median of the launches' medians
    step_s: float
    host_bytes: float  # that a step reads in the host's memory
    off_host_bytes: float  # that it reads elsewhere
    ceiling_tok_s: float
    predicted_s: float  # of a step, from the memories' speeds

    @property
    def error(self) -> float:
        """Of the predicted time, relative to what was measured."""
        return self.predicted_s / self.step_s - 1


@dataclass(frozen=True)
class Sweep:
    """Points with the fewest layers off the host first, and the speeds that some of them tell."""

    points: tuple[Point, ...]
    speeds: two_tiers.Speeds | None

    @property
    def between(self) -> tuple[Point, ...]:
        """Those that are predicted from the others."""
        return self.points[self.speeds.known - 1 : -1] if self.speeds else self.points[1:-1]


def sweep_of(rows: pd.DataFrame) -> Sweep:
    """The points of rows of one model, engine and case."""
    ok = two_tiers.with_read_bytes(rows[(rows["status"] == "ok") & rows["decode_tok_s"].notna()])
    launches = ok.groupby([_LAYERS, "run_id", "launch"])["decode_tok_s"].median()
    table = ok.groupby(_LAYERS)[["batch", HOST, OFF_HOST, "decode_ceiling_tok_s"]].median()
    table["tok_s"] = launches.groupby(_LAYERS).median()
    table["step_s"] = table["batch"] / table["tok_s"]
    speeds = two_tiers.speeds_of(table) if len(table) > 1 else None
    table["predicted_s"] = two_tiers.predicted_s(table, speeds) if speeds else math.nan
    columns = ["tok_s", "step_s", HOST, OFF_HOST, "decode_ceiling_tok_s", "predicted_s"]
    cells = table[columns].astype(float).itertuples(name=None)
    return Sweep(tuple(Point(int(layers), *numbers) for layers, *numbers in cells), speeds)


def offload_text(rows: pd.DataFrame, words: Words, left_out: Sequence[int] = ()) -> str:
    """A table and a few sentences; empty where nothing was measured.

    Args:
        rows: of one model, engine and case with several numbers of layers off the host, as `results.read` gives them.
        words: of the language to speak.
        left_out: numbers of layers that were not measured since fewer are no slower.
    """
    sweep = sweep_of(rows)
    return "\n".join([_table(sweep, words), "", *_sentences(sweep, words, left_out)]) if sweep.points else ""


def _table(sweep: Sweep, words: Words) -> str:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in _HEADINGS:
        table.add_column(words[f"offload.{name}"], justify="right", overflow="fold")
    for point in sweep.points:
        is_between = point in sweep.between
        table.add_row(
            str(point.layers),
            gigabytes(point.host_bytes),
            gigabytes(point.off_host_bytes),
            number(1e3 * point.step_s),
            number(point.tok_s),
            number(point.ceiling_tok_s),
            number(1e3 * point.predicted_s) if is_between else EMPTY,
            _signed_percent(point.error) if is_between else EMPTY,
        )
    console = Console(width=_WIDTH)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()


def _sentences(sweep: Sweep, words: Words, left_out: Sequence[int]) -> list[str]:
    fastest, last = max(sweep.points, key=lambda point: point.tok_s), sweep.points[-1]
    told = [words["offload.fastest"].format(layers=fastest.layers, rate=number(fastest.tok_s))]
    if left_out:
        told.append(words["offload.left_out"].format(layers=", ".join(map(str, left_out))))
    if len(sweep.points) == 1:
        return told
    if sweep.speeds is None:
        return [*told, words["offload.no_speeds"]]
    host, off_host, handover_s, _ = sweep.speeds
    speeds = {"host": gigabytes(host), "off_host": gigabytes(off_host), "handover": number(1e3 * handover_s)}
    told.append(words["offload.speeds_and_handover" if handover_s else "offload.speeds"].format(**speeds))
    if sweep.between:
        worst = max(sweep.between, key=lambda point: abs(point.error))
        told.append(words["offload.worst"].format(layers=worst.layers, error=_signed_percent(worst.error)))
        if not handover_s:
            told.append(words["offload.no_handover"])
    told.append(
        words["offload.where"].format(
            layers=last.layers,
            step=number(1e3 * last.step_s),
            host_ms=number(1e3 * last.host_bytes / host),
            host=gigabytes(last.host_bytes),
            off_host_ms=number(1e3 * last.off_host_bytes / off_host),
            off_host=gigabytes(last.off_host_bytes),
            handover=words["offload.handing_over"].format(ms=speeds["handover"]) if handover_s else "",
        )
    )
    return told


def _signed_percent(share: float) -> str:
    return EMPTY if math.isnan(share) else f"{100 * share:+.1f}"
