"""Rates by the layers on the GPU, beside what both memories allow."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from reports.figures import Drawn, Missing

Make = Callable[..., dict[str, Any]]


def _row(make_row: Make, layers: int, **cells: Any) -> dict[str, Any]:
    return make_row(
        backend="llama.cpp",
        gpu_layers_effective=layers,
        engine_settings={"asked": {"n_gpu_layers": layers, "weights": "bf16"}},
        decode_tok_s=10.0 + layers,
        decode_ceiling_tok_s=20.0 + 2 * layers,
        **cells,
    )


def test_rates_and_ceilings_by_layers_a_line_for_each_context(drawn: Callable[..., Drawn], make_row: Make) -> None:
    rows = [_row(make_row, layers, n_depth=depth) for layers in (16, 0, 33) for depth in (0, 4096)]
    (axes,) = drawn("offload", *rows).figure.axes
    measured = [bars.lines[0] for bars in axes.containers]
    assert [list(line.get_xdata()) for line in measured] == [[0, 16, 33]] * 2
    assert [list(line.get_ydata()) for line in measured] == [[10, 26, 43]] * 2
    ceilings = [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "--"]
    assert ceilings == [[20, 52, 86]] * 2


def test_the_ends_predict_the_middle_from_the_bytes_of_each_memory(drawn: Callable[..., Drawn], make_row: Make) -> None:
    # The host reads 12 GB in 0.24 s, 50 GB/s, the card in 0.024 s, 500 GB/s; half of it on each: 0.132 s.
    rows = []
    for layers, host, card, rate in ((0, 12, 0, 1 / 0.24), (7, 6, 6, 7.0), (13, 0, 12, 1 / 0.024)):
        tiers = [{"memory": "cpu", "read_bytes": host * 10**9}, {"memory": "CUDA0", "read_bytes": card * 10**9}]
        device = "CUDA0" if layers else "cpu"
        rows.append(_row(make_row, layers, tiers=tiers, device=device) | {"decode_tok_s": rate})
    found = drawn("offload", *rows)
    (axes,) = found.figure.axes
    (predicted,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert list(predicted.get_ydata()) == pytest.approx([1 / 0.24, 1 / 0.132, 1 / 0.024])
    assert "predicted from the memories' speeds" in [text.get_text() for text in found.figure.texts]


def test_nothing_is_predicted_where_the_rows_do_not_tell_what_they_read(
    drawn: Callable[..., Drawn], make_row: Make
) -> None:
    found = drawn("offload", *(_row(make_row, layers) for layers in (0, 8, 16)))
    (axes,) = found.figure.axes
    (predicted,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert all(math.isnan(rate) for rate in predicted.get_ydata())
    assert "predicted from the memories' speeds" not in [text.get_text() for text in found.figure.texts]


def test_one_placement_is_no_figure(missing: Callable[..., Missing], make_row: Make) -> None:
    assert "-ngl 0,8,16,24,-1" in missing("offload", _row(make_row, 8), make_row()).reason


def test_other_settings_are_other_panels(drawn: Callable[..., Drawn], make_row: Make) -> None:
    rows = [_row(make_row, layers) for layers in (0, 8)]
    rows += [
        cells
        | {"engine_settings": {"asked": {"n_gpu_layers": n, "weights": "bf16", "n_threads": 4}}, "row_id": f"{n:012x}"}
        for n, cells in zip((0, 8), rows, strict=True)
    ]
    assert len(drawn("offload", *rows).figure.axes) == 2
