"""Memory: weights, KV cache and the rest against what the device has; what did not fit is shown as such."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports.figures import bars
from reports.figures.contract import Missing
from reports.figures.data import WORK, lines, own, sound, telling
from reports.figures.sheet import Entry, box, line
from reports.figures.style import GREY, INK, ORANGE, PALE, SKY, VERMILION
from reports.figures.texts import joined
from reports.numbers import count, gigabytes
from reports.summary import SUBJECT
from results.schema import CASE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reports.figures.contract import Drawn
    from reports.words import Words

# How the engines and the harness say that memory ran out.
_NO_ROOM = r"(?i)out of (?:\w+ )?memory|insufficient memory|alloc|needs about [\d.]+ \w*B\b"

_WEIGHTS, _KV, _A_TOKEN = "weight_bytes", "kv_cache_bytes", "kv_bytes_per_token"
_CAPACITY = "device_memory_bytes"
_PARTS = {"weights": SKY, "kv": ORANGE, "rest": PALE, "placed": GREY}
_NEEDED: dict[str, Any] = {"edgecolor": VERMILION, "hatch": "///"}
_GB = 1e9


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """A panel for each machine; of many cases those of each model that need the most."""
    found = _cases(own(rows))
    if not ((found["total"] > 0) | found[_CAPACITY].notna()).any():
        return Missing(words["figures.memory.title"], words["figures.memory.missing"])
    shown = _most_needy(found)
    panels = [_panel(panel) for _, panel in shown.groupby("machine", sort=False)]
    failed = int(shown["failed"].sum())
    content = bars.Content(
        panels,
        _bars,
        _key(shown, words),
        words["figures.unit.memory"],
        _columns(panels, words),
        len(found) - len(shown),
        words["figures.memory.alt"].format(n=len(shown), machines=len(panels), failed=failed),
    )
    return bars.figure("memory", words, content)


def _cases(kept: pd.DataFrame) -> pd.DataFrame:
    """One line a case: `weights`, `kv`, `rest` and, for a model split over two memories, `placed`, in bytes.

    Of a case that did not fit, `failed`, weights and KV cache are worked out from other rows of the model.
    """
    peaks = sound(kept, ["peak_device_bytes", "peak_host_bytes"])
    kept = kept.assign(peak=peaks["peak_device_bytes"].fillna(peaks["peak_host_bytes"]))
    by = [*WORK, *CASE, "context"]
    ok = lines(kept, by, "peak", [_WEIGHTS, _KV, _CAPACITY], ["peak_device_bytes"])
    held = ok[_WEIGHTS] + ok[_KV]
    is_split = ok["peak_device_bytes"].notna() & (held > ok["peak"])
    is_told = held.notna() & ~is_split
    ok = ok.assign(
        weights=ok[_WEIGHTS].where(is_told),
        kv=ok[_KV].where(is_told),
        rest=(ok["peak"] - held.where(is_told, 0)).clip(lower=0).where(~is_split),
        placed=ok["peak"].where(is_split),
        failed=False,
    )
    found = pd.concat([each[[*by, "settings", _CAPACITY, *_PARTS, "failed"]] for each in (ok, _not_fitting(kept, ok))])
    found = found.fillna(dict.fromkeys(_PARTS, 0.0)).astype({**dict.fromkeys(_PARTS, float), "failed": bool})
    return found.assign(total=found[[*_PARTS]].sum(axis=1)).reset_index(drop=True)


def _not_fitting(kept: pd.DataFrame, ok: pd.DataFrame) -> pd.DataFrame:
    request = [*SUBJECT, "asked", *CASE]
    no_room = kept["error"].str.contains(_NO_ROOM).eq(other=True)
    failed = kept[(kept["status"] != "ok") & no_room].drop_duplicates(request)
    failed = failed.merge(ok[request].drop_duplicates(), on=request, how="left", indicator="met")
    failed = failed[failed["met"] == "left_only"]
    of_model, of_engine = ["model", "weight_format"], ["machine", "backend"]
    sizes = sound(kept, [_WEIGHTS, _A_TOKEN, _CAPACITY])
    known = sizes.groupby(of_model)[[_WEIGHTS, _A_TOKEN]].median().reset_index()
    known_capacity = sizes.groupby(of_engine)[[_CAPACITY]].max().reset_index()
    failed = failed.drop(columns=[_WEIGHTS, _A_TOKEN, _CAPACITY])
    failed = failed.merge(known, on=of_model, how="left").merge(known_capacity, on=of_engine, how="left")
    return failed.assign(
        weights=failed[_WEIGHTS],
        kv=_tokens(failed).astype("float64") * failed[_A_TOKEN],
        rest=0.0,
        placed=0.0,
        settings="",
        failed=True,
    )


def _tokens(found: pd.DataFrame) -> pd.Series[int]:
    """That the KV cache holds at the end, all sequences."""
    return found["batch"] * (found["context"] + found["n_gen"])


def _most_needy(found: pd.DataFrame) -> pd.DataFrame:
    """As many lines as one figure can show: of each engine and model what did not fit or is largest, then more."""
    found = found.sort_values(["failed", "total"], ascending=False, kind="stable")
    rank = found.groupby([*SUBJECT, "settings"], dropna=False).cumcount()
    chosen = found.loc[rank.sort_values(kind="stable").index[: bars.MOST_BARS]]
    return chosen.sort_values(["machine", "failed", "total"], ascending=[True, False, False], kind="stable")


def _panel(found: pd.DataFrame) -> bars.Panel:
    first = found.iloc[0]
    differing = telling(found, ["model", "weight_format"])
    alike = [first[column] for column in ("model", "weight_format") if column not in differing]
    return bars.Panel(joined([first["machine"], *alike], 70), found, differing)


def _columns(panels: list[bars.Panel], words: Words) -> list[bars.Cells]:
    tokens = [[count(n) for n in _tokens(panel.lines)] for panel in panels]
    peaks = [[_peak(row, words) for row in panel.rows] for panel in panels]
    return [
        bars.Cells(words["figures.memory.tokens"], 1.1, tokens),
        bars.Cells(words["figures.memory.peak"], 1.1, peaks),
    ]


def _peak(row: dict[str, Any], words: Words) -> str:
    return words["figures.memory.no_fit"] if row["failed"] else gigabytes(row["total"])


def _bars(axes: Axes, found: pd.DataFrame) -> None:
    rows = np.arange(len(found))
    fitting = ~found["failed"].to_numpy(bool)
    left = np.zeros(len(found))
    for name, color in _PARTS.items():
        width = np.where(fitting, found[name], 0) / _GB
        axes.barh(rows, width, bars.THICKNESS, left=left, color=color)
        left += width
    needed = np.where(fitting, 0, found["total"]) / _GB
    axes.barh(rows, needed, bars.THICKNESS, color="none", **_NEEDED)
    capacity = found[_CAPACITY].to_numpy(float) / _GB
    axes.plot(capacity, rows, linestyle="None", color=INK, **bars.TICK)
    most = np.nanmax([*left, *needed, *capacity])
    axes.set_xlim(0, 1.05 * most or 1.0)  # of a panel nothing may be known but that it did not fit


def _key(found: pd.DataFrame, words: Words) -> list[Entry]:
    fitting = found[~found["failed"]]
    drawn = [name for name in _PARTS if (fitting[name] > 0).any()]
    entries = [Entry(box(_PARTS[name]), words[f"figures.memory.{name}"]) for name in drawn]
    if (found["failed"] & (found["total"] > 0)).any():
        entries.append(Entry(box("none", **_NEEDED), words["figures.memory.needed"]))
    if found[_CAPACITY].notna().any():
        entries.append(Entry(line(INK, "None", **bars.TICK), words["figures.memory.capacity"]))
    return entries
