"""The time a token takes by context, and its parts, from rows whose answer is known with a pencil."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from reports.figures import Drawn, Missing

Make = Callable[..., dict[str, Any]]
Draw = Callable[..., Drawn]

KV = 131_072  # bytes a token


def _row(make_row: Make, depth: int, tpot_s: float, **cells: Any) -> dict[str, Any]:
    return make_row(
        n_depth=depth, n_prompt=0, tpot_s=tpot_s, decode_tok_s=1 / tpot_s, kv_read_bytes=depth * KV, **cells
    )


def _known(make_row: Make, *, weights_gbs: float = 100.0) -> list[dict[str, Any]]:
    """2 GB of weights at 100 GB/s, 5 ms of overhead, and a KV cache read at 40 GB/s."""
    times = {depth: 0.020 + 0.005 + depth * KV / 40e9 for depth in (0, 4096, 16384)}
    return [
        _row(make_row, depth, seconds + jitter, launch=launch, bandwidth_measured_gbs=weights_gbs)
        for depth, seconds in times.items()
        for launch, jitter in ((1, -1e-5), (2, 0.0), (3, 1e-5))
    ]


def _areas(axes: Axes) -> list[tuple[float, float]]:
    """The heights of each stacked area at its left and its right end."""
    heights = []
    for area in (one for one in axes.collections if isinstance(one, PolyCollection)):
        corners = area.get_paths()[0].vertices
        ends = [corners[np.isclose(corners[:, 0], x)][:, 1] for x in (corners[:, 0].min(), corners[:, 0].max())]
        heights.append(tuple(float(end.max() - end.min()) for end in ends))
    return heights


def test_measured_points_and_the_line_of_the_bytes(drawn: Draw, make_row: Make) -> None:
    (axes,) = drawn("depth", *_known(make_row)).figure.axes
    (bars,) = axes.containers
    points = bars.lines[0]
    assert list(points.get_xdata()) == [0, 4096, 16384]
    assert points.get_ydata() == pytest.approx([25, 25 + 4096 * KV / 40e6, 25 + 16384 * KV / 40e6])
    (read,) = (line for line in axes.lines if line.get_linestyle() == "--")
    assert read.get_ydata() == pytest.approx([20, 20 + 4096 * KV / 100e6, 20 + 16384 * KV / 100e6])
    low, high = bars.lines[2][0].get_segments()[0][:, 1]
    assert (high - low) / 2 == pytest.approx(1e-2)  # of three launches 10 microseconds apart, in ms


def test_the_split_is_weights_overhead_and_what_grows(drawn: Draw, make_row: Make) -> None:
    figure = drawn("depth", *_known(make_row))
    weights, overhead, kv = _areas(figure.figure.axes[0])
    assert weights == pytest.approx((20, 20))
    assert overhead == pytest.approx((5, 5), rel=1e-3)
    assert kv == pytest.approx((0, 16384 * KV / 40e6), abs=1e-3)
    texts = {text.get_text() for text in figure.figure.texts}
    assert {"weights, at measured bandwidth", "overhead", "KV cache, from the slope"} <= texts


def test_without_a_measured_bandwidth_weights_and_overhead_are_one(drawn: Draw, make_row: Make) -> None:
    rows = [cells | {"bandwidth_measured_gbs": None} for cells in _known(make_row)]
    together, kv = _areas(drawn("depth", *rows).figure.axes[0])
    assert together == pytest.approx((25, 25), rel=1e-3)
    assert kv[1] == pytest.approx(16384 * KV / 40e6, rel=1e-3)


def test_weights_that_would_take_longer_than_there_is_are_not_split_off(drawn: Draw, make_row: Make) -> None:
    assert len(_areas(drawn("depth", *_known(make_row, weights_gbs=50.0)).figure.axes[0])) == 2  # 40 of 25 ms


def test_depths_that_tell_no_slope_are_points_only(drawn: Draw, make_row: Make) -> None:
    rows = [_row(make_row, depth, seconds) for depth, seconds in ((0, 0.03), (4096, 0.02), (8192, 0.025))]
    assert _areas(drawn("depth", *rows).figure.axes[0]) == []


def test_one_depth_is_no_figure(missing: Callable[..., Missing], make_row: Make) -> None:
    assert "tokenroof run -d 0,4096,16384" in missing("depth", make_row(), make_row(backend="mlx", n_depth=64)).reason


def test_engines_have_panels_of_their_own_each_machine_first_once(drawn: Draw, make_row: Make) -> None:
    rows = [
        _row(make_row, depth, 0.02 + depth * 1e-6, machine=machine, model=f"m{n}")
        for machine in ("a", "b")
        for n in range(6)
        for depth in (0, 1024, 2048)
    ]
    figure = drawn("depth", *rows).figure
    assert len(figure.axes) == 8
    titles = [text.get_text() for text in figure.texts if text.get_text().startswith("torch, ")]
    assert titles == ["torch, a", "torch, b"] * 4
    assert "4 more do not fit here; the tables have all." in [text.get_text() for text in figure.texts]
