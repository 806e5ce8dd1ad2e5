"""What a sweep says, for two memories of 50 and 500 GB/s: 12 GB of weights in 12 layers, the output layer apart."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports import two_tiers
from reports.offload import offload_text, sweep_of
from reports.words import words
from results.read import read

GB = 10**9
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def table(write_rows: Callable[..., Path]) -> Callable[..., pd.DataFrame]:
    return lambda *rows: read(write_rows(*rows))


def _row(
    make_row: Make, layers: int, *, host_gb: float | None, gpu_gb: float, step_s: float, **cells: Any
) -> dict[str, Any]:
    tiers = [
        {"memory": "cpu", "name": None, "read_bytes": None if host_gb is None else host_gb * GB},
        {"memory": "CUDA0", "name": "card", "read_bytes": gpu_gb * GB},
    ]
    return make_row(
        **{
            "backend": "llama.cpp",
            "gpu_layers_effective": layers,
            "decode_tok_s": 1 / step_s,
            "decode_ceiling_tok_s": 2 / step_s,
            "tiers": tiers,
            "launch": 1,
            **cells,
        }
    )


def _sweep(make_row: Make, middle_s: float = 0.132) -> list[dict[str, Any]]:
    """12 GB on the host take 0.24 s; 6 there and 6 on the card 0.12 + 0.012 s; all on the card 0.024 s."""
    return [
        _row(make_row, 13, host_gb=0, gpu_gb=12, step_s=0.024),
        _row(make_row, 0, host_gb=12, gpu_gb=0, step_s=0.24),
        _row(make_row, 7, host_gb=6, gpu_gb=6, step_s=middle_s),
    ]


def test_the_ends_tell_two_speeds_and_predict_the_middle(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    found = sweep_of(table(*_sweep(make_row)))
    assert found.speeds == pytest.approx((50e9, 500e9, 0, 2))
    assert [point.layers for point in found.points] == [0, 7, 13]
    (middle,) = found.between
    assert middle.predicted_s == pytest.approx(0.132)
    assert middle.error == pytest.approx(0, abs=1e-9)
    assert middle.ceiling_tok_s == pytest.approx(2 / 0.132)


def _with_handover(make_row: Make) -> list[dict[str, Any]]:
    """The same memories, and 15 ms for every step that leaves the host: 0.24, 0.219 + 0.015, 0.132 + 0.015, …"""
    steps = ((0, 12.0, 0.24), (2, 10.0, 0.219), (7, 6.0, 0.147), (10, 3.0, 0.093), (13, 0.0, 0.039))
    return [_row(make_row, n, host_gb=on_host, gpu_gb=12 - on_host, step_s=s) for n, on_host, s in steps]


def test_three_points_tell_what_handing_over_costs(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    found = sweep_of(table(*_with_handover(make_row)))
    assert found.speeds == pytest.approx((50e9, 500e9, 0.015, 3))
    assert [point.layers for point in found.between] == [7, 10]
    assert [point.error for point in found.between] == pytest.approx([0, 0], abs=1e-9)
    said = offload_text(table(*_with_handover(make_row)), words("en")).splitlines()
    assert _numbers(said, "By the two ends and the first split") == [50, 500, 15]
    assert _numbers(said, "At -ngl") == [13, 39, 0, 0, 24, 12, 15]
    assert not any(line.startswith("What a step pays") for line in said)


def test_times_that_leave_nothing_for_handing_over(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    """A first split that is faster than both speeds allow would be paid for handing over."""
    rows = _with_handover(make_row)
    rows[1] = _row(make_row, 2, host_gb=10, gpu_gb=2, step_s=0.19)
    found = sweep_of(table(*rows))
    assert found.speeds is not None
    assert (found.speeds.handover_s, len(found.between)) == (0, 3)


def test_sequences_at_once_share_a_step(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    rows = [row | {"batch": 4, "decode_tok_s": 4 * row["decode_tok_s"]} for row in _sweep(make_row)]
    assert sweep_of(table(*rows)).speeds == pytest.approx((50e9, 500e9, 0, 2))


def test_a_launch_that_repeats_more_weighs_no_more(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    # Medians of three launches: 10, 20 and 40 tokens a second.
    rates = [(1, 10.0), (2, 20.0), (2, 20.0), (2, 20.0), (2, 20.0), (2, 20.0), (3, 40.0)]
    rows = [_row(make_row, 0, host_gb=12, gpu_gb=0, step_s=1 / rate, launch=launch) for launch, rate in rates]
    (point,) = sweep_of(table(*rows)).points
    assert point.tok_s == 20


def test_what_is_said(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    # 0.132 s are predicted for the middle, and 0.12 s measured: 10 % too many.
    said = offload_text(table(*_sweep(make_row, middle_s=0.12)), words("en"), left_out=(10, 11)).splitlines()
    assert _numbers(said, "Fastest at") == [13, 41.7]
    assert _numbers(said, "Not measured") == [10, 11]
    assert _numbers(said, "By the two ends") == [50, 500]
    assert _numbers(said, "Predicted from") == [7, 10]
    assert _numbers(said, "At -ngl") == [13, 24, 0, 0, 24, 12]
    assert _numbers(said, "   7") == [7, 6, 6, 120, 8.33, 16.7, 132, 10]
    japanese = offload_text(table(*_sweep(make_row)), words("ja"))
    assert _numbers(japanese.splitlines(), "最速は") == [13, 41.7]
    assert "…" not in japanese  # no heading is cut


def _numbers(lines: list[str], start: str) -> list[float]:
    """Of the line that begins so, in three digits."""
    (line,) = [line for line in lines if line.startswith(start)]
    return [float(f"{float(text):.3g}") for text in re.findall(r"\d+(?:\.\d+)?", line)]


def test_a_part_that_stays_on_the_host_has_its_share_of_the_time(
    table: Callable[..., pd.DataFrame], make_row: Make
) -> None:
    rows = [
        _row(make_row, 0, host_gb=12, gpu_gb=0, step_s=0.24),
        _row(make_row, 9, host_gb=4, gpu_gb=8, step_s=0.096),
    ]
    assert _numbers(offload_text(table(*rows), words("en")).splitlines(), "At -ngl") == [9, 96, 80, 4, 16, 8]


def test_nothing_is_predicted_from_ends_that_contradict(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    rows = [
        _row(make_row, 0, host_gb=12, gpu_gb=0, step_s=0.24),
        _row(make_row, 7, host_gb=6, gpu_gb=6, step_s=0.1),
        _row(make_row, 9, host_gb=4, gpu_gb=8, step_s=0.05),  # the host's 4 GB alone take 0.08 s
    ]
    found = sweep_of(table(*rows))
    assert found.speeds is None
    assert math.isnan(found.points[1].predicted_s)
    assert "they predict nothing" in offload_text(table(*rows), words("en"))
    assert two_tiers.speeds_of(pd.DataFrame({"step_s": [1.0], two_tiers.HOST: [1], two_tiers.OFF_HOST: [1]})) is None


def test_rows_that_do_not_tell_what_they_read(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    rows = [
        _row(make_row, 0, host_gb=None, gpu_gb=0, step_s=0.24),
        _row(make_row, 7, host_gb=6, gpu_gb=6, step_s=0.13, tiers=None),
        _row(make_row, 13, host_gb=0, gpu_gb=12, step_s=0.024),
    ]
    assert sweep_of(table(*rows)).speeds is None


def test_one_point_and_none(table: Callable[..., pd.DataFrame], make_row: Make) -> None:
    alone = offload_text(table(_row(make_row, 0, host_gb=12, gpu_gb=0, step_s=0.24)), words("en")).splitlines()
    assert _numbers(alone[-1:], "Fastest at") == [0, 4.17]
    failed = _row(make_row, 0, host_gb=12, gpu_gb=0, step_s=0.24, status="failed", error="gone")
    assert offload_text(table(failed), words("en")) == ""
