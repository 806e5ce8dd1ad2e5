"""Splitting the time of a step: worked examples, tables of Student's t, and numbers that are refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.roofline.breakdown import fit_depths, fit_sizes, split

GB = 1e9


def test_a_worked_line() -> None:
    # Residuals -0.1, 0.8, -1.3, 0.6: s² = 2.7 / 2; standard errors sqrt(1.35 / 5), sqrt(1.35 (1/4 + 1.5² / 5)).
    line = fit_depths([0, 1, 2, 3], [1, 3, 2, 5])
    assert line.slope == pytest.approx(1.1)
    assert line.intercept == pytest.approx(1.1)
    assert line.slope_interval == pytest.approx((1.1 - 4.3027 * 0.51962, 1.1 + 4.3027 * 0.51962), abs=1e-4)
    assert line.intercept_interval == pytest.approx((1.1 - 4.3027 * 0.97211, 1.1 + 4.3027 * 0.97211), abs=1e-4)
    assert not line.has_slope


@given(st.floats(1, 2000), st.floats(0.1, 500), st.lists(st.integers(0, 400), min_size=2, max_size=8, unique=True))
def test_an_exact_line_is_found(bandwidth_gbs: float, intercept_ms: float, depths: list[int]) -> None:
    kv_bytes = np.array(depths) * 50e6
    line = fit_depths(kv_bytes, intercept_ms / 1e3 + kv_bytes / (bandwidth_gbs * GB))
    assert 1 / line.slope == pytest.approx(bandwidth_gbs * GB, rel=1e-3)
    assert line.intercept == pytest.approx(intercept_ms / 1e3, rel=1e-3)
    assert line.has_slope
    assert (line.slope_interval is None) == (len(depths) == 2)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    random = np.random.default_rng(0)
    kv_bytes = np.array([0, 1, 2, 4, 8]) * 100e6
    hits = 0
    for _ in range(4000):
        line = fit_depths(kv_bytes, 0.05 + kv_bytes / 30e9 + random.normal(0, 0.001, 5))
        assert line.slope_interval is not None
        hits += line.slope_interval[0] <= 1 / 30e9 <= line.slope_interval[1]
    assert hits / 4000 == pytest.approx(0.95, abs=0.012)


def test_sizes_tell_weights_and_overhead_apart() -> None:
    streamed = np.array([1.2, 2.5, 6.4]) * GB
    line = fit_sizes(streamed, 0.004 + streamed / (30 * GB))
    assert 1 / line.slope == pytest.approx(30 * GB)
    assert line.intercept == pytest.approx(0.004)
    with pytest.raises(ValueError, match="2 model sizes are too few"):
        fit_sizes([1e9, 2e9, 2e9], [0.1, 0.2, 0.2])


def test_split_against_the_measured_bandwidth() -> None:
    found = split(0.061, 1.19 * GB, 0.07 * GB, 35 * GB)
    assert found.weights_s == pytest.approx(0.034)
    assert found.kv_s == pytest.approx(0.002)
    assert found.rest_s == pytest.approx(0.025)
    assert split(0.030, 1.19 * GB, 0, 35 * GB).rest_s == pytest.approx(-0.004)


@pytest.mark.parametrize(
    ("kv_bytes", "times", "named"),
    [
        ([1, 2], [0.1], "one length"),
        ([1, 1], [0.1, 0.2], "two different kv_bytes"),
        ([], [], "two different kv_bytes"),
        ([1, -2], [0.1, 0.2], "kv_bytes is -2"),
        ([1, math.nan], [0.1, 0.2], "kv_bytes is nan"),
        ([1, 2], [0.1, math.inf], "time_s is inf"),
    ],
)
def test_lines_that_cannot_be_drawn(kv_bytes: list[float], times: list[float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        fit_depths(kv_bytes, times)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 1, 1, 1e9), "tpot_s"),
        ((1, -1, 1, 1e9), "streamed_bytes"),
        ((1, 1, -1, 1e9), "kv_bytes"),
        ((1, 1, 1, 35), "bandwidth_bytes_s"),
        ((1, 1, 1, math.nan), "bandwidth_bytes_s"),
    ],
)
def test_absurd_numbers_are_named(arguments: tuple[float, float, float, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        split(*arguments)
