"""The headline's bars, marks and numbers are the rows' own."""

from collections.abc import Callable
from statistics import stdev
from typing import Any

import pytest
from matplotlib.axes import Axes

from reports.figures import Drawn

Make = Callable[..., dict[str, Any]]
Draw = Callable[..., Drawn]


def _widths(axes: Axes) -> list[float]:
    return [bar.get_width() for bar in axes.patches]


def _marks(axes: Axes, marker: str) -> list[float]:
    (mark,) = (line for line in axes.lines if line.get_marker() == marker and line.get_markersize() > 6)  # no cap
    return list(mark.get_xdata())


def _texts(drawn: Drawn) -> list[str]:
    return [text.get_text() for text in drawn.figure.texts]


def _errors(axes: Axes) -> list[tuple[float, float]]:
    (bars,) = (c for c in axes.containers if c.__class__.__name__ == "ErrorbarContainer")
    return [(segment[0][0], segment[1][0]) for segment in bars.lines[2][0].get_segments()]


def test_bars_are_medians_of_launches_with_their_spread_fastest_first(drawn: Draw, make_row: Make) -> None:
    slow = [
        make_row(launch=n, decode_tok_s=rate)
        for n, rates in ((1, (10, 11, 99)), (2, (12, 13, 14)), (3, (20,)))
        for rate in rates
    ]
    fast = make_row(backend="llama.cpp", decode_tok_s=45.0)
    (axes,) = drawn("ceiling", *slow, fast).figure.axes
    assert _widths(axes) == [45, 13]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["llama.cpp", "torch"]
    spread = stdev([11, 13, 20])
    assert _errors(axes)[1] == pytest.approx((13 - spread, 13 + spread))


def test_both_ceilings_are_marked_and_mbu_is_printed(drawn: Draw, make_row: Make) -> None:
    figure = drawn("ceiling", make_row(decode_ceiling_spec_tok_s=64.0))
    (axes,) = figure.figure.axes
    assert (_marks(axes, "|"), _marks(axes, "D")) == ([50], [64])
    assert {"40.00", "80 %", "MBU"} <= set(_texts(figure))
    assert axes.get_xlim()[1] > 64
    assert "torch on spark with llama-3.2-1b: 40.00 tokens/s, 80 %" in figure.alt


def test_a_rate_above_its_ceiling_says_so(drawn: Draw, make_row: Make) -> None:
    assert "120 %!" in _texts(drawn("ceiling", make_row(decode_tok_s=60.0)))


def test_room_and_tokens_per_joule_stand_beside_where_they_are_known(drawn: Draw, make_row: Make) -> None:
    # (18 - 2) GB / 32 768 B = 488 281 tokens; 128 tokens of 256 J.
    known = {
        "device_memory_bytes": 18 * 10**9,
        "weight_bytes": 2 * 10**9,
        "kv_bytes_per_token": 32768,
        "energy_j": 256.0,
    }
    texts = _texts(drawn("ceiling", make_row(**known, n_gpu_layers=-1)))
    assert {"488 k", "room, tokens", "0.500", "tokens/J"} <= set(texts)
    assert not {"room, tokens", "tokens/J"} & set(_texts(drawn("ceiling", make_row())))
    split = _texts(drawn("ceiling", make_row(**known, n_gpu_layers=8)))
    assert "room, tokens" not in split


def test_contexts_and_models_are_panels_of_their_own_and_titles_say_what_all_share(drawn: Draw, make_row: Make) -> None:
    rows = [make_row(), make_row(backend="mlx"), make_row(model="other", n_depth=4096), make_row(machine="mac")]
    figure = drawn("ceiling", *rows)
    assert len(figure.figure.axes) == 2
    texts = _texts(figure)
    assert "llama-3.2-1b, bf16: context 512, 128 generated, batch 1" in texts
    assert "other, bf16, spark: context 4,608, 128 generated, batch 1" in texts
    labels = [label.get_text() for label in figure.figure.axes[0].get_yticklabels()]
    assert labels == ["torch, spark", "mlx, spark", "torch, mac"]


def test_what_failed_or_is_not_comparable_is_no_bar(drawn: Draw, make_row: Make) -> None:
    failed = make_row(backend="mlx", status="failed", error="no", decode_tok_s=None)
    unlike = make_row(backend="x", comparable="no", comparable_why="another clock", decode_tok_s=30.0)
    published = make_row(backend="y", provenance="published", source="https://example.org", decode_tok_s=30.0)
    (axes,) = drawn("ceiling", make_row(), failed, unlike, published).figure.axes
    assert _widths(axes) == [40]


def test_answers_unlike_other_engines_make_an_open_bar(drawn: Draw, make_row: Make) -> None:
    probes = {"torch": [3.0, 4.0, *[0.0] * 14], "llama.cpp": [3.0, 4.0, *[0.0] * 14], "mlx": [9.0, -4.0, *[0.0] * 14]}
    rows = [make_row(backend=engine, probe_logits=probe, architecture="llama") for engine, probe in probes.items()]
    figure = drawn("ceiling", *rows)
    (axes,) = figure.figure.axes
    opened = [bar.get_facecolor()[3] == 0 for bar in axes.patches]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert dict(zip(labels, opened, strict=True)) == {"torch": False, "llama.cpp": False, "mlx": True}
    assert "answers unlike other engines'" in _texts(figure)


def test_forty_bars_are_shown_and_the_rest_is_counted(drawn: Draw, make_row: Make) -> None:
    figure = drawn("ceiling", *(make_row(machine=f"machine {n}", decode_tok_s=1.0 + n) for n in range(43)))
    (axes,) = figure.figure.axes
    assert len(axes.patches) == 40
    assert min(_widths(axes)) == 4  # the three slowest are left out
    assert "3 more do not fit here; the tables have all." in _texts(figure)
