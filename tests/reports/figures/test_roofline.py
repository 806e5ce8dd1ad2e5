"""Points lie where the rows say, and lines where bandwidth over bytes is."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

from reports.figures import Drawn, Missing
from reports.figures.roofline import apart

Make = Callable[..., dict[str, Any]]
Draw = Callable[..., Drawn]


def _lines(axes: Axes, style: str) -> list[Line2D]:
    """The diagonals; the leaders to the names lie in the axes' own coordinates."""
    return [line for line in axes.lines if line.get_linestyle() == style and line.get_transform() == axes.transData]


def _points(axes: Axes, size: float = 8) -> list[tuple[float, float]]:
    marks = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_markersize() == size]
    return [(float(x), float(y)) for line in marks for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def test_a_point_is_bytes_a_token_against_its_rate(drawn: Draw, make_row: Make) -> None:
    # (2 + 1) GB a step; of four sequences each token's share is a quarter.
    rows = [make_row(kv_read_bytes=10**9), make_row(kv_read_bytes=10**9, batch=4, decode_tok_s=120.0)]
    (axes,) = drawn("roofline", *rows).figure.axes
    assert sorted(_points(axes)) == [(0.75, 120), (3, 40)]


def test_diagonals_are_bandwidth_over_bytes(drawn: Draw, make_row: Make) -> None:
    rows = [
        make_row(bandwidth_spec_gbs=120.0),
        make_row(machine="mac", bandwidth_spec_gbs=800.0, bandwidth_measured_gbs=700.0, decode_tok_s=300.0),
    ]
    (axes,) = drawn("roofline", *rows).figure.axes
    for style, expected in (("-", [120, 800]), ("--", [100, 700])):
        products = [np.unique(np.round(line.get_xdata() * line.get_ydata(), 6)) for line in _lines(axes, style)]
        assert [float(only) for (only,) in products] == expected
        for line in _lines(axes, style):
            x, y = np.log(line.get_xdata()), np.log(line.get_ydata())
            assert np.diff(y) / np.diff(x) == pytest.approx(-1)


def test_a_model_read_from_cache_bends_the_measured_line_to_its_speed(drawn: Draw, make_row: Make) -> None:
    small = make_row(model="small", streamed_bytes_per_token=10**8, bandwidth_measured_gbs=400.0, decode_tok_s=2000.0)
    (axes,) = drawn("roofline", make_row(), small).figure.axes
    (line,) = _lines(axes, "--")
    speeds = dict(zip(np.round(line.get_xdata(), 6), np.round(line.get_xdata() * line.get_ydata(), 6), strict=True))
    assert (speeds[0.1], speeds[2.0]) == (400, 100)


def test_a_model_in_two_memories_is_a_point_but_bends_no_line(drawn: Draw, make_row: Make) -> None:
    split = make_row(
        model="big",
        streamed_bytes_per_token=10**10,
        bandwidth_spec_gbs=30.0,
        bandwidth_measured_gbs=20.0,
        decode_tok_s=2.0,
    )
    (axes,) = drawn("roofline", make_row(bandwidth_spec_gbs=120.0), split).figure.axes
    assert (10, 2) in _points(axes)
    (line,) = _lines(axes, "--")
    assert line.get_xdata() * line.get_ydata() == pytest.approx(100)


def test_published_rates_lie_below_in_grey(drawn: Draw, make_row: Make) -> None:
    published = make_row(
        provenance="published", source="https://example.org", streamed_bytes_per_token=5 * 10**9, decode_tok_s=9.0
    )
    figure = drawn("roofline", make_row(), published)
    (axes,) = figure.figure.axes
    assert _points(axes) == [(2, 40)]
    assert _points(axes, size=4) == [(5, 9)]
    assert "1 measured point " in figure.alt
    assert "1 published point." in figure.alt


def test_lines_without_bytes_are_counted_and_without_any_there_is_no_figure(
    drawn: Draw, missing: Callable[..., Missing], make_row: Make
) -> None:
    unknown = make_row(backend="foreign", streamed_bytes_per_token=None, kv_read_bytes=None)
    texts = [text.get_text() for text in drawn("roofline", make_row(), unknown).figure.texts]
    assert "Lines that do not tell how many bytes they read: 1." in texts
    assert "Run: tokenroof run" in missing("roofline", unknown).reason


def test_each_device_is_named_with_its_bandwidths(drawn: Draw, make_row: Make) -> None:
    rows = [
        make_row(bandwidth_spec_gbs=120.0),
        make_row(machine="mac"),
        make_row(machine="pi", bandwidth_measured_gbs=None),
    ]
    texts = [text.get_text() for text in drawn("roofline", *rows).figure.texts]
    assert {"spark", "120.0 GB/s, 100.0 measured", "mac", "100.0 GB/s measured", "pi", "bandwidth not known"} <= set(
        texts
    )


def test_devices_too_many_to_name_are_counted_on_the_page(drawn: Draw, make_row: Make) -> None:
    rows = [make_row(machine=f"machine {n}", bandwidth_spec_gbs=100.0 + n) for n in range(40)]
    figure = drawn("roofline", *rows).figure
    FigureCanvasAgg(figure).draw()
    width, _ = figure.canvas.get_width_height()
    assert max(text.get_window_extent().x1 for text in figure.texts) <= width
    named = sum(text.get_text().startswith("machine ") for text in figure.texts)
    (told,) = (text.get_text() for text in figure.texts if "without a name" in text.get_text())
    assert f"fit: {40 - named}." in told


@pytest.mark.parametrize("wanted", [[0.0, 0.1, 0.2, 5.0], [5.6] * 10, [-3.0, 9.0], [2.0], []])
def test_names_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    places = apart(wanted, 0.43, 5.6)
    assert all(later - earlier >= 0.43 - 1e-9 for earlier, later in pairwise(places))
    assert all(0.215 - 1e-9 <= place <= 5.6 - 0.215 + 1e-9 for place in places)
