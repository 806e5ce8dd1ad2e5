"""Percentiles of the intervals between tokens."""

from collections.abc import Callable
from typing import Any

import pytest

from reports.figures import Drawn, Missing

Make = Callable[..., dict[str, Any]]
ITL = {"itl_p50_s": 0.020, "itl_p90_s": 0.022, "itl_p99_s": 0.030, "itl_max_s": 0.050}


def test_marks_are_the_rows_percentiles_and_the_longest_interval_of_all(
    drawn: Callable[..., Drawn], make_row: Make
) -> None:
    rows = [make_row(**ITL | {"itl_max_s": longest}, repetition=n) for n, longest in enumerate((0.04, 0.09, 0.05), 1)]
    figure = drawn("jitter", *rows)
    (axes,) = figure.figure.axes
    assert {line.get_marker(): float(line.get_xdata()[0]) for line in axes.lines} == pytest.approx(
        {"o": 20, "|": 22, "D": 30, ">": 90}
    )
    assert "4.5 ×" in [text.get_text() for text in figure.figure.texts]
    assert "p50 20.00 ms, longest 90.00 ms" in figure.alt


def test_without_intervals_there_is_no_figure(missing: Callable[..., Missing], make_row: Make) -> None:
    assert "tokenroof run -n 128" in missing("jitter", make_row()).reason
