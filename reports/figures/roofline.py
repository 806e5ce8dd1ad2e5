"""The bandwidth roofline: bytes that a token reads against tokens a second, one diagonal a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports.figures.contract import Drawn, Missing
from reports.figures.data import WORK, lines, own, sound
from reports.figures.sheet import NOTE_LINE, Entry, Sheet, key_height, line, log_scale
from reports.figures.style import GREY, INK, MARKERS, PAPER, QUIET, SERIES, SMALL
from reports.figures.texts import short
from reports.numbers import number
from results.schema import CASE, PUBLISHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reports.words import Words

_RATE, _SPEC, _MEASURED = "decode_tok_s", "bandwidth_spec_gbs", "bandwidth_measured_gbs"
_BYTES = ["streamed_bytes_per_token", "kv_read_bytes"]
_DEVICE = ["machine", "device_name"]
_LEFT, _WIDTH, _HEIGHT = 0.95, 5.9, 5.6  # inches of the axes
_NAMES = 7.3
_MOST_NAMES = 13
_NAME_HEIGHT = 0.43
_POINT: dict[str, Any] = {"markersize": 8, "markeredgewidth": 0.9, "zorder": 3}
_LEADER: dict[str, Any] = {"linewidth": 0.8, "clip_on": False}
_ALIKE = 0.05  # of a size: models that differ less are as large
_WHOLE = 0.98  # of the device's bandwidth: below it, a part of the model lay in a slower memory


def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
    """Every measured line as a point; published rates, if there are any, in grey below them."""
    title = words["figures.roofline.title"]
    found = _gigabytes(lines(own(rows), [*WORK, "device_name", *CASE], _RATE, [*_BYTES, _SPEC, _MEASURED]))
    points = found[found["gigabytes"] > 0]
    if points.empty:
        return Missing(title, words["figures.roofline.missing"])
    published = sound(rows[rows["provenance"] == PUBLISHED], [_RATE, *_BYTES])
    published = _gigabytes(published[published[_RATE] > 0])
    devices = [device for _, device in points.groupby(_DEVICE, dropna=False, sort=False)]
    engines = points["backend"].value_counts().index.tolist()
    markers = {name: MARKERS[min(n, len(MARKERS) - 1)] for n, name in enumerate(engines)}
    entries = _key(points, markers, words, published=not published.empty)
    top = key_height(entries) + 0.2
    left_out = len(found) - len(points)
    unnamed = len(devices) - _MOST_NAMES
    notes = [words["figures.roofline.unnamed"].format(n=unnamed)] if unnamed > 0 else []
    notes += [words["figures.roofline.left_out"].format(n=left_out)] if left_out else []
    sheet = Sheet(top + _HEIGHT + 0.75 + NOTE_LINE * len(notes))
    sheet.key(entries)
    sheet.note("\n".join(notes))
    axes = sheet.axes(_LEFT, top, _WIDTH, _HEIGHT)
    axes.set_xlabel(words["figures.unit.gigabytes_token"])
    axes.set_ylabel(words["figures.unit.decode"])
    _limits(axes, pd.concat([points, published]))
    axes.plot(published["gigabytes"], published[_RATE], "o", color=GREY, markersize=4, alpha=0.6, zorder=2)
    roofs = []
    for color, device in zip(SERIES * len(devices), devices, strict=False):
        roofs.append(_roofs(axes, device, color))
        for (backend, refused), group in device.groupby(["backend", "refused"], sort=False):
            face, edge = (PAPER, color) if refused else (color, PAPER)
            points_drawn = axes.plot(group["gigabytes"], group[_RATE], markers[backend], markersize=8, zorder=3)
            points_drawn[0].set(markerfacecolor=face, markeredgecolor=edge, markeredgewidth=0.9)
    _name_roofs(sheet, axes, top, roofs, words)
    alt = words["figures.roofline.alt"].format(n=len(points), devices=len(devices), published=len(published))
    return Drawn(sheet.figure, title, alt)


def _gigabytes(found: pd.DataFrame) -> pd.DataFrame:
    """With what each token reads: a step's bytes over the sequences that get a token from it."""
    return found.assign(gigabytes=found[_BYTES].sum(axis=1, skipna=False) / found["batch"].astype("float64") / 1e9)


def _limits(axes: Axes, points: pd.DataFrame) -> None:
    """Room for every point and for the roof above it."""
    sizes = points["gigabytes"]
    reached = pd.concat([points[_RATE], points[_SPEC] / sizes, points[_MEASURED] / sizes])
    log_scale(axes, "x", sizes.min(), sizes.max())
    log_scale(axes, "y", reached.min(), reached.max())


@dataclass(frozen=True)
class _Roof:
    """A device's two lines; None where the bandwidth is not known."""

    name: str
    color: str
    vendor_gbs: float | None
    measured_gbs: float | None  # for the largest model

    @property
    def end_gbs(self) -> float | None:
        """The bandwidth of the line that is named."""
        return self.vendor_gbs or self.measured_gbs


def _roofs(axes: Axes, device: pd.DataFrame, color: str) -> _Roof:
    """Draw a device's diagonals: the vendor's, and the measured one, which bends where small models fit a cache.

    A line is no roof of what was placed in two memories, or of a batch, whose step reads more than its tokens' shares.
    """
    vendor = device[_SPEC].max()
    one_memory = device[_SPEC].isna() | (device[_SPEC] >= _WHOLE * vendor)
    told = device[one_memory & (device["batch"] == device["batch"].min())].dropna(subset=[_MEASURED])
    name = short(device["machine"].iloc[0], 26)
    edges = np.array(axes.get_xlim())
    if vendor > 0:
        axes.plot(edges, vendor / edges, "-", color=color, linewidth=1.4, zorder=1)
    if told.empty:
        return _Roof(name, color, vendor if vendor > 0 else None, None)
    alike = np.round(np.log(told["gigabytes"].to_numpy(float)) / _ALIKE)
    curve = told[["gigabytes", _MEASURED]].groupby(alike).median()
    sizes = np.array([edges[0], *curve["gigabytes"], edges[1]])
    speeds = curve[_MEASURED].to_numpy(float)[[0, *range(len(curve)), -1]]
    axes.plot(sizes, speeds / sizes, "--", color=color, linewidth=1.4, zorder=1)
    return _Roof(name, color, vendor if vendor > 0 else None, speeds[-1])


def _name_roofs(sheet: Sheet, axes: Axes, top: float, roofs: list[_Roof], words: Words) -> None:
    """Each device's name beside the right end of its line, moved where two would meet."""
    low, high = np.log(axes.get_ylim())
    known = sorted((roof for roof in roofs if roof.end_gbs), key=lambda roof: -(roof.end_gbs or 0))
    known += [roof for roof in roofs if not roof.end_gbs]
    right = axes.get_xlim()[1]
    ends = [(high - np.log((roof.end_gbs or 1e-9) / right)) / (high - low) * _HEIGHT for roof in known]
    shown = known[:_MOST_NAMES]
    places = apart(ends[: len(shown)], _NAME_HEIGHT, _HEIGHT)
    for roof, end, place in zip(shown, ends, places, strict=False):
        if 0 <= end <= _HEIGHT and roof.end_gbs:
            axes.plot(
                [1.005, 1.035],
                [1 - end / _HEIGHT, 1 - place / _HEIGHT],
                color=roof.color,
                **_LEADER,
                transform=axes.transAxes,
            )
        axes.plot(
            [1.05],
            [1 - place / _HEIGHT],
            marker="s",
            markersize=9,
            clip_on=False,
            color=roof.color,
            transform=axes.transAxes,
        )
        sheet.text(_NAMES, top + place - 0.09, roof.name, fontsize=SMALL, fontweight="bold")
        sheet.text(_NAMES, top + place + 0.1, _speeds(roof, words), color=QUIET, fontsize=SMALL)


def _speeds(roof: _Roof, words: Words) -> str:
    known = {"vendor": roof.vendor_gbs, "measured": roof.measured_gbs}
    told = [key for key, gbs in known.items() if gbs]
    text = words[f"figures.roofline.{'_'.join(['speed', *told])}"]
    return text.format(**{key: number(known[key] or 0) for key in told})


def apart(wanted: list[float], gap: float, most: float) -> list[float]:
    """Places near the wanted ones, in their order, at least `gap` apart and between `gap / 2` and `most - gap / 2`."""
    places = [min(max(place, gap / 2), most - gap / 2) for place in wanted]
    for number_ in range(1, len(places)):
        places[number_] = max(places[number_], places[number_ - 1] + gap)
    limit = most - gap / 2
    for number_ in range(len(places) - 1, -1, -1):
        places[number_] = min(places[number_], limit)
        limit = places[number_] - gap
    return places


def _key(points: pd.DataFrame, markers: dict[str, str], words: Words, *, published: bool) -> list[Entry]:
    named = [(name, marker) for name, marker in markers.items() if marker != MARKERS[-1]]
    entries = [Entry(line(INK, "None", marker, markersize=8), short(name, 30)) for name, marker in named]
    if len(named) < len(markers):
        entries.append(Entry(line(INK, "None", MARKERS[-1], markersize=8), words["figures.roofline.others"]))
    if points["refused"].any():
        entries.append(Entry(line(INK, "None", "o", markersize=8, markerfacecolor="none"), words["figures.refused"]))
    if published:
        entries.append(Entry(line(GREY, "None", "o", markersize=4), words["figures.roofline.published"]))
    if points[_SPEC].notna().any():
        entries.append(Entry(line(INK, "-"), words["figures.roofline.vendor"]))
    if points[_MEASURED].notna().any():
        entries.append(Entry(line(INK, "--"), words["figures.roofline.measured"]))
    return entries
