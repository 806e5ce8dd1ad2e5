"""Names beside points, so that none lies on another name or point and none leaves the axes."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.transforms import Bbox

from reports.figures.sheet import WIDTH
from reports.figures.style import INK, QUIET, SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_CHARACTER, _LINE = 0.105, 0.2  # inches that one takes at most, in the small size
_BESIDE = 0.1  # inches between a point and its name
_HALF_POINT = 0.06
_FAR = 0.18
_TEXT: dict[str, Any] = {"fontsize": SMALL, "color": INK, "va": "center"}
_LEADER: dict[str, Any] = {"color": QUIET, "linewidth": 0.8, "zorder": 1}
_STEPS = [step * sign for step in np.arange(0, 2, 0.1) for sign in (1, -1)]


def name_points(axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str]) -> None:
    """Write a name beside each point, as near as it finds room; from farther away a line leads to it.

    Args:
        axes: with their final limits.
        points: x and y, in data.
        names: of the points; one that finds no room is left out.
    """
    frame, height = axes.get_position(), WIDTH * axes.bbox.height / axes.bbox.width
    room = np.array([frame.width * WIDTH, frame.width * height])
    to_axes = axes.transData + axes.transAxes.inverted()
    places = to_axes.transform(points) * room  # inches from the lower left corner
    taken = [Bbox.from_bounds(x, y, 0, 0).padded(_HALF_POINT) for x, y in places]
    for place, name in zip(places, names, strict=True):
        for step, side in product(_STEPS, (1, -1)):
            start = place + np.array([side * _BESIDE, step])
            box = _box(start, side * _CHARACTER * len(name))
            inside = min(box.x0, box.y0) >= 0 and box.x1 <= room[0] and box.y1 <= room[1]
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                x, y = start / room
                axes.text(x, y, name, ha="left" if side > 0 else "right", transform=axes.transAxes, **_TEXT)
                if abs(step) >= _FAR:
                    axes.plot(*np.transpose([place / room, start / room]), transform=axes.transAxes, **_LEADER)
                break


def _box(start: NDArray[np.float64], width: float) -> Bbox:
    """Of a name's line, from the end that is next to its point; to the left where the width is negative."""
    left = start[0] + min(width, 0)
    return Bbox.from_bounds(left, start[1] - _LINE / 2, abs(width), _LINE)
