"""Speed against quality loss: one workload, one model a panel, each format a named point, from known rows."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from reports.figures import Drawn, Missing

Make = Callable[..., dict[str, Any]]
Draw = Callable[..., Drawn]
KL = {"q8_0": 0.0004, "q5_k_m": 0.004, "q4_k_m": 0.02, "q4_0": 0.05}
RATES = {"q8_0": 20.0, "q5_k_m": 30.0, "q4_k_m": 35.0, "q4_0": 36.0, "bf16": 11.0}


def _rows(make_row: Make, **cells: Any) -> list[dict[str, Any]]:
    common = {"backend": "llama.cpp"} | cells
    return [
        make_row(weight_format=form, decode_tok_s=rate, quality_kl=KL.get(form), **common)
        for form, rate in RATES.items()
    ]


def _points(axes: Any) -> list[list[float]]:
    return [point for bars in axes.containers for point in bars.lines[0].get_xydata().tolist()]


def test_each_format_is_a_point_with_its_name(drawn: Draw, make_row: Make) -> None:
    figure = drawn("quality", *_rows(make_row))
    (axes,) = figure.figure.axes
    assert axes.get_xscale() == "log"
    assert _points(axes) == [[KL[form], RATES[form]] for form in KL]
    assert [text.get_text() for text in axes.texts] == list(KL)
    (unquantised,) = (line for line in axes.lines if line.get_linestyle() == "--")
    assert set(unquantised.get_ydata()) == {11.0}
    assert "closest is llama.cpp, q8_0 (0.000400 nats, 20.00 tokens/s)" in figure.alt
    assert "fastest is llama.cpp, q4_0 (0.050 nats, 36.00 tokens/s)" in figure.alt


def test_machines_and_models_have_panels_and_the_workload_that_most_formats_did(drawn: Draw, make_row: Make) -> None:
    deep = [row for row in _rows(make_row, n_depth=4096) if row["weight_format"] != "q4_0"]
    figure = drawn("quality", *deep, *_rows(make_row), *_rows(make_row, machine="mac"), *_rows(make_row, model="other"))
    assert [len(_points(axes)) for axes in figure.figure.axes] == [4, 4, 4]
    subtitles = [text.get_text() for text in figure.figure.texts if "batch 1" in text.get_text()]
    assert sorted(subtitles) == ["mac, context 512, batch 1", *["spark, context 512, batch 1"] * 2]


def test_names_of_near_points_keep_apart(drawn: Draw, make_row: Make) -> None:
    near = [
        make_row(backend=engine, weight_format=form, decode_tok_s=30 + n / 10, quality_kl=0.02 + n / 1000)
        for n, (engine, form) in enumerate(
            [("llama.cpp", "q4_k_m"), ("mlx", "4bit-g32"), ("torch", "int4"), ("llama.cpp", "iq4_xs"), ("mlx", "4bit")]
        )
    ]
    figure = drawn("quality", *near).figure
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    frame, boxes = axes.get_window_extent(), [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 5
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(
        frame.x0 <= box.x0 and box.x1 <= frame.x1 + 1 and frame.y0 <= box.y0 and box.y1 <= frame.y1 for box in boxes
    )


def test_a_format_that_loses_nothing_has_no_place_on_a_logarithm(drawn: Draw, make_row: Make) -> None:
    rows = [row | ({"quality_kl": 0.0} if row["weight_format"] == "q8_0" else {}) for row in _rows(make_row)]
    (axes,) = drawn("quality", *rows).figure.axes
    assert [text.get_text() for text in axes.texts] == ["q5_k_m", "q4_k_m", "q4_0"]


@pytest.mark.parametrize("known", [(), ("q4_0",)])
def test_one_format_is_no_comparison(missing: Callable[..., Missing], make_row: Make, known: tuple[str, ...]) -> None:
    rows = [
        row | {"quality_kl": row["quality_kl"] if row["weight_format"] in known else None} for row in _rows(make_row)
    ]
    assert "-w bf16,8bit,4bit" in missing("quality", *rows).reason
