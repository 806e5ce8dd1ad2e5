"""What a case held, and what did not fit."""

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.axes import Axes

from reports.figures import Drawn, Missing

Make = Callable[..., dict[str, Any]]
Draw = Callable[..., Drawn]

SIZES = {
    "weight_bytes": 2 * 10**9,
    "kv_cache_bytes": 5 * 10**8,
    "kv_bytes_per_token": 10**6,
    "device_memory_bytes": 16 * 10**9,
}


def _bars(axes: Axes) -> list[list[float]]:
    """The widths of each row's parts, from left to right, without empty ones."""
    rows: dict[int, list[float]] = {}
    for bar in sorted(axes.patches, key=lambda bar: bar.get_x()):
        if bar.get_width():
            rows.setdefault(round(bar.get_y() + bar.get_height() / 2), []).append(bar.get_width())
    return [rows[n] for n in sorted(rows)]


def test_weights_cache_and_the_rest_make_the_peak(drawn: Draw, make_row: Make) -> None:
    on_gpu = make_row(backend="mlx", **SIZES, peak_device_bytes=4 * 10**9, peak_host_bytes=9 * 10**9)
    on_cpu = make_row(**SIZES, peak_host_bytes=3 * 10**9)
    (axes,) = drawn("memory", on_gpu, on_cpu).figure.axes
    gpu, cpu = _bars(axes)
    assert gpu == pytest.approx([2, 0.5, 1.5])  # host and device are never added: they may be one memory
    assert cpu == pytest.approx([2, 0.5, 0.5])
    (mark,) = axes.lines
    assert list(mark.get_xdata()) == [16, 16]


def test_a_split_model_shows_what_lies_on_the_device_only(drawn: Draw, make_row: Make) -> None:
    figure = drawn("memory", make_row(**SIZES, peak_device_bytes=10**9))
    assert _bars(figure.figure.axes[0]) == [[1]]
    assert "on the device, model split" in [text.get_text() for text in figure.figure.texts]


def test_what_did_not_fit_is_shown_with_what_it_needed(drawn: Draw, make_row: Make) -> None:
    # 2 GB of weights and 20 000 + 512 + 128 tokens of 1 MB.
    failed = make_row(
        n_depth=20_000, status="failed", error="torch: out of host memory: no", decode_tok_s=None, peak_host_bytes=None
    )
    figure = drawn("memory", make_row(**SIZES), failed)
    (axes,) = figure.figure.axes
    assert _bars(axes)[0] == pytest.approx([22.64])
    assert "did not fit" in [text.get_text() for text in figure.figure.texts]
    assert figure.alt.endswith("1 did not fit.")
    (mark,) = axes.lines
    assert list(mark.get_xdata()) == [16, 16]


@pytest.mark.parametrize(
    ("error", "fits"),
    [
        ("out of host memory; take a smaller model, a shorter context or a smaller batch", False),
        ("torch: CUDA out of memory. Tried to allocate 2 GiB", False),
        ("unable to allocate CUDA0 buffer", False),
        ("torch needs about 30.0 GB, but 20.0 GB are free in this machine's memory", False),
        ("killed (SIGKILL) by hand, or by the system for want of memory (1.0 GB are free now)", True),
        ("no such kernel", True),
    ],
)
def test_only_errors_of_memory_say_that_it_did_not_fit(drawn: Draw, make_row: Make, error: str, fits: bool) -> None:
    failed = make_row(backend="mlx", status="failed", error=error, peak_host_bytes=None)
    figure = drawn("memory", make_row(), failed).figure
    assert ("did not fit" not in [text.get_text() for text in figure.texts]) is fits


@pytest.mark.filterwarnings("error")
def test_what_failed_without_any_number_is_named_beside_others_and_no_figure_by_itself(
    drawn: Draw, missing: Callable[..., Missing], make_row: Make
) -> None:
    failed = make_row(machine="mac", status="failed", error="out of memory", peak_host_bytes=None, weight_format=None)
    assert "tokenroof run" in missing("memory", failed).reason
    texts = [text.get_text() for text in drawn("memory", make_row(), failed).figure.texts]
    assert "did not fit" in texts


def test_machines_have_scales_of_their_own_and_the_largest_cases_come_first(drawn: Draw, make_row: Make) -> None:
    rows = [
        make_row(machine=f"m{n}", n_depth=d, peak_host_bytes=(n + 1) * 10**9 + d) for n in range(3) for d in range(20)
    ]
    figure = drawn("memory", *rows).figure
    assert [len(axes.get_yticks()) for axes in figure.axes] == [13, 13, 14]  # m2 needs the most
    assert [axes.get_xlim()[1] for axes in figure.axes] == pytest.approx([1.05, 2.1, 3.15])
    assert "20 more do not fit here; the tables have all." in [text.get_text() for text in figure.texts]


def test_without_a_peak_there_is_no_figure(missing: Callable[..., Missing], make_row: Make) -> None:
    assert "tokenroof run" in missing("memory", make_row(peak_host_bytes=None)).reason
