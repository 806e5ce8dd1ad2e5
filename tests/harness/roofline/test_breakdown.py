"""Splitting the time of a step: worked examples, tables of Student's t, sentences that claim no more than they may."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.roofline.breakdown import fit_depths, fit_sizes, split, student_t_95
from harness.roofline.breakdown_text import sentences, size_sentence

GB = 1e9


@pytest.mark.parametrize(
    ("degrees_of_freedom", "quantile"),
    # From the printed tables (NIST/SEMATECH e-Handbook, 1.3.6.7.2), two-sided 95 %.
    [
        *((1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (11, 2.201), (15, 2.131), (20, 2.086), (30, 2.042)),
        *((60, 2.000), (100, 1.984), (10**6, 1.960)),
    ],
)
def test_students_t(degrees_of_freedom: int, quantile: float) -> None:
    assert student_t_95(degrees_of_freedom) == pytest.approx(quantile, abs=0.0006)


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


def test_words_for_one_depth() -> None:
    (text,) = sentences([0.07 * GB], [0.061], streamed_bytes=1.19 * GB, bandwidth_bytes_s=35 * GB)
    assert text.startswith(
        "61 ms a token: 34 ms is reading weights at this memory's measured speed (35 GB/s), "
        "2 ms is reading the KV cache at that speed, 25 ms is neither"
    )


def test_repetitions_at_one_depth_are_one_depth() -> None:
    (text,) = sentences([0.07 * GB] * 3, [0.060, 0.061, 0.099], streamed_bytes=1.19 * GB, bandwidth_bytes_s=35 * GB)
    assert text.startswith("61 ms a token")


def test_words_for_several_depths() -> None:
    kv_bytes = np.array([0.01, 0.2, 0.4, 0.8]) * GB
    noise = np.array([1, -1, -1, 1]) * 1e-4
    first, slope, intercept = sentences(
        kv_bytes, 0.040 + kv_bytes / (20 * GB) + noise, streamed_bytes=1.05 * GB, bandwidth_bytes_s=35 * GB
    )
    assert first.startswith("40.6 ms a token: 30 ms is reading weights")
    assert slope == "From 4 depths: the KV cache is read at 20 GB/s (95 %: 19.6 to 20.4)."
    assert "30 ms weights, 9.98 ms overhead (95 %: 9.51 to 10.4)" in intercept
    assert "if the weights are read at the measured 35 GB/s" in intercept


def test_two_depths_have_no_interval() -> None:
    _, slope, _ = sentences([0, GB], [0.04, 0.09], streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert slope == "From 2 depths: the KV cache is read at 20 GB/s (two places give no interval)."


@pytest.mark.parametrize("times", [[0.040, 0.039, 0.038], [0.040, 0.048, 0.041]])
def test_no_slope_is_claimed_where_none_can_be_told(times: list[float]) -> None:
    _, text = sentences([0, 0.1 * GB, 0.2 * GB], times, streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert text.startswith("No slope can be told from these 3 depths")
    assert "the KV cache is read at" not in text.split(".")[0]


def test_two_depths_of_which_the_deeper_is_faster() -> None:
    _, text = sentences([0, GB], [0.04, 0.03], streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert text == "No slope can be told from these 2 depths: a deeper context is not slower."


def test_a_step_faster_than_the_measured_bandwidth_is_not_taken_apart() -> None:
    (text,) = sentences([0], [0.061], streamed_bytes=2.47 * GB, bandwidth_bytes_s=35 * GB)
    assert "takes 70.6 ms" in text
    assert "cannot be taken apart" in text
    *_, intercept = sentences([0, GB], [0.061, 0.09], streamed_bytes=2.47 * GB, bandwidth_bytes_s=35 * GB)
    assert "less than the 70.6 ms of the weights" in intercept
    assert "overhead" not in intercept


def test_a_cache_read_faster_than_the_memory_is_pointed_out() -> None:
    _, slope, _ = sentences([0, GB], [0.04, 0.05], streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert "100 GB/s" in slope
    assert "more than the 35 GB/s measured" in slope


def test_without_a_measured_bandwidth_nothing_is_split() -> None:
    first, slope, intercept = sentences([0, GB], [0.04, 0.09], streamed_bytes=GB)
    assert "25 GB/s if nothing else takes time" in first
    assert "20 GB/s" in slope
    assert intercept.endswith("weights and overhead together, which depths cannot tell apart.")


def test_an_intercept_below_zero_is_no_time() -> None:
    *_, intercept = sentences([GB, 2 * GB], [0.04, 0.09], streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert "leaves no time for the weights" in intercept


def test_words_for_sizes() -> None:
    streamed = np.array([1, 2, 4, 8]) * GB
    exact = 0.004 + streamed / (30 * GB)
    noise = np.array([1, -1, -1, 1]) * 1e-5
    text = size_sentence(fit_sizes(streamed, exact + noise))
    assert text.startswith("From 4 model sizes: weights are read at 30 GB/s (95 %: 30 to 30), and 4 ms overhead (95 %:")
    assert "if it is the same for every size" in text
    scattered = size_sentence(fit_sizes(streamed, exact + 500 * noise))
    assert "cannot be told from none (at most" in scattered
    assert "do not tell" in size_sentence(fit_sizes(streamed, [0.1, 0.2, 0.1, 0.2]))


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
