import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.compare.noise import COLUMNS, cv_pct, noise

SPEEDS = st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=6), min_size=1, max_size=5)


def of_line(*launches: list[float]) -> dict[str, float]:
    return all_lines([launches]).iloc[0].to_dict()


def all_lines(lines: list[tuple[list[float], ...]]) -> pd.DataFrame:
    numbered = [(i, launch) for i, launches in enumerate(lines) for launch in launches]
    rows = [(i, j, k, x) for j, (i, launch) in enumerate(numbered) for k, x in enumerate(launch, 1)]
    line, launch, repetition, speed = (np.array(column) for column in zip(*rows, strict=True))
    return noise(line, launch, repetition.astype(float), speed.astype(float))


def test_a_launch_counts_by_its_median() -> None:
    line = of_line([1.0, 2.0, 9.0], [4.0, 4.0, 4.0])
    assert line["launches"] == 2
    assert line["repetitions"] == 6
    assert line["log_speed"] == pytest.approx(3)  # of 2 and 4
    assert line["sd_launches"] == pytest.approx(2**0.5)


def test_the_spread_within_is_pooled_over_launches() -> None:
    # squares about the means 2 and 20: 1 + 0 + 1 and 4 + 0 + 4; 6 repetitions less 2 launches
    assert of_line([1.0, 2.0, 3.0], [18.0, 20.0, 22.0])["sd_within"] == pytest.approx((10 / 4) ** 0.5)


def test_a_steady_loss_is_a_trend_without_doubt() -> None:
    line = of_line([0.00, -0.01, -0.02, -0.03], [0.50, 0.49, 0.48, 0.47])  # the launches' levels do not matter
    assert [line[name] for name in ("trend", "trend_low", "trend_high")] == pytest.approx([-0.01] * 3)


def test_the_trend_has_the_interval_of_a_regression() -> None:
    # x -1.5 … 1.5: slope 5.5/5 = 1.1, residual squares 2.7 with 2 degrees: error sqrt(1.35/5); t of 2 degrees is 4.3027
    line = of_line([1.0, 3.0, 2.0, 5.0])
    assert line["trend"] == pytest.approx(1.1)
    assert line["trend_high"] - line["trend"] == pytest.approx(4.3027 * (1.35 / 5) ** 0.5, rel=1e-4)


def test_a_far_repetition_is_an_outlier() -> None:
    assert of_line([0.00, 0.01, -0.01, 0.02, -0.02, 0.5])["outliers"] == 1
    assert of_line([0.00, 0.01, -0.01, 0.02, -0.02, 0.03])["outliers"] == 0


def test_three_to_a_launch_make_no_outliers_of_their_own() -> None:
    speeds = np.random.default_rng(1).normal(size=(400, 3, 3))
    outliers = all_lines([tuple(launch.tolist() for launch in line) for line in speeds])["outliers"]
    assert outliers.sum() / speeds.size < 0.05


def test_what_so_few_cannot_tell_is_missing() -> None:
    line = of_line([1.0])
    missing = ["sd_launches", "sd_within", "trend", "trend_low", "trend_high", "outliers"]
    assert [name for name, value in line.items() if np.isnan(value)] == missing
    assert np.isnan(of_line([1.0, 2.0])["trend_low"]), "two points fit every line"


def test_the_coefficient_of_variation_is_relative() -> None:
    rates = np.exp(np.random.default_rng(1).normal(2, 0.2, 100_000))
    assert cv_pct(np.log(rates).std()) == pytest.approx(100 * rates.std() / rates.mean(), rel=0.01)


@settings(max_examples=30, deadline=None)
@given(st.lists(SPEEDS, min_size=1, max_size=4), st.floats(-2, 2))
def test_lines_do_not_mix_and_a_faster_machine_is_no_noisier(lines: list[list[list[float]]], faster: float) -> None:
    together = all_lines([tuple(line) for line in lines])
    for i, line in enumerate(lines):
        alone = of_line(*[[speed + faster for speed in launch] for launch in line])
        expected = together.iloc[i].to_dict()
        assert alone.pop("log_speed") == pytest.approx(expected.pop("log_speed") + faster, abs=1e-9)
        del alone["outliers"], expected["outliers"]  # rounding decides which repetition is its launch's median
        assert alone == pytest.approx(expected, abs=1e-7, nan_ok=True)
        assert list(together) == COLUMNS
