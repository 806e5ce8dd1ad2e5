import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.compare.noise import noise
from results.compare.verdicts import LAUNCH_FLOOR, judge

# Welch's t-test, Wikipedia, example 1: t = -2.46 with 25.0 degrees of freedom, p = 0.021.
ONE = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
OTHER = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]

Lines = np.ndarray  # [pairs, launches, repetitions], log speeds


def lines(speeds: Lines) -> pd.DataFrame:
    pairs, launches, repetitions = speeds.shape
    launch = np.arange(pairs * launches).repeat(repetitions)
    place = np.tile(np.arange(1.0, repetitions + 1), pairs * launches)
    return noise(launch // launches, launch, place, speeds.ravel())


def judged(base: Lines, new: Lines, min_effect: float = 0.02) -> pd.DataFrame:
    return judge(lines(base).add_prefix("base_").join(lines(new).add_prefix("new_")), min_effect)


def launches(*rates: float) -> Lines:
    """One pair's side: a launch each, three repetitions alike."""
    return np.log(rates)[None, :, None].repeat(3, axis=2)


def drawn(seed: int, shape: tuple[int, int, int], launch_sd: float, within_sd: float, ratio: float = 1) -> Lines:
    random = np.random.default_rng(seed)
    levels = random.normal(np.log(100 * ratio), launch_sd, (*shape[:2], 1))
    return levels + random.normal(0, within_sd, shape)


def test_the_interval_is_welchs() -> None:
    one, other = (np.array(values)[None, :, None] for values in (ONE, OTHER))
    result = judged(one, other, 0.0).iloc[0]
    assert result["p"] == pytest.approx(0.021, abs=5e-4)
    assert result["interval_from"] == "launches"
    difference = np.mean(OTHER) - np.mean(ONE)
    assert np.log(result["ratio"]) == pytest.approx(difference)
    # 2.060: Student's t of 25 degrees in the tables
    assert np.log(result["ratio_high"]) - difference == pytest.approx(2.060 * difference / 2.46, rel=0.003)


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ((110.0, 110.5, 109.5), "faster"),
        ((90.0, 90.5, 89.5), "slower"),
        ((100.0, 100.5, 99.5), "no significant difference"),
        ((101.5, 101.6, 101.7), "no significant difference"),  # real, but below the minimum effect
        ((80.0, 100.0, 130.0), "cannot tell"),
    ],
)
def test_verdicts(new: tuple[float, ...], verdict: str) -> None:
    result = judged(launches(100.0, 100.4, 99.6), launches(*new)).iloc[0]
    assert result["verdict"] == verdict
    assert (result["verdict_why"] == "a difference of 10 % lies in the interval") == (verdict == "cannot tell")


def test_the_minimum_effect_is_the_readers() -> None:
    base, new = launches(100.0, 100.4, 99.6), launches(110.0, 110.5, 109.5)
    assert judged(base, new, 0.02)["verdict"].item() == "faster"
    assert judged(base, new, 0.15)["verdict"].item() == "no significant difference"


def test_few_launches_are_taken_to_vary() -> None:
    result = judged(launches(100.0), launches(103.0)).iloc[0]
    assert result["interval_from"] == "floor"
    # 1.96 standard errors of a difference of two launches
    assert np.log(result["ratio_high"] / result["ratio"]) == pytest.approx(1.96 * 2**0.5 * LAUNCH_FLOOR, rel=1e-3)
    assert result["verdict"] == "no significant difference"
    assert judged(launches(100.0), launches(110.0))["verdict"].item() == "faster"


def test_the_floor_is_no_ceiling() -> None:
    """Repetitions that vary by more than the floor say that launches do, however many they are."""
    few, many = (judged(drawn(1, (1, 1, n), 0, 0.1), drawn(2, (1, 1, n), 0, 0.1)).iloc[0] for n in (5, 500))
    for result in (few, many):
        assert np.log(result["ratio_high"] / result["ratio_low"]) / 2 > 1.9 * 2**0.5 * 0.07
        assert result["verdict"] == "cannot tell"


def test_launches_that_differ_outweigh_the_floor() -> None:
    result = judged(launches(100.0, 120.0), launches(105.0)).iloc[0]
    assert result["ratio_low"] < 0.5, "one degree of freedom: t is 12.7"


def test_one_repetition_tells_nothing() -> None:
    result = judged(launches(100.0), np.log([[[300.0]]])).iloc[0]
    assert result["ratio"] == pytest.approx(3)
    assert result["verdict"] == "cannot tell"
    assert result["verdict_why"] == "a single repetition shows no noise"


def test_sides_that_repeat_themselves_exactly_are_compared_by_their_ratio() -> None:
    same = judged(launches(100.0, 100.0, 100.0), launches(100.0, 100.0, 100.0)).iloc[0]
    assert (same["ratio_low"], same["ratio_high"], same["verdict"]) == (1, 1, "no significant difference")
    assert judged(launches(100.0, 100.0, 100.0), launches(103.0, 103.0, 103.0))["verdict"].item() == "faster"


def test_many_comparisons_are_corrected_as_holm_does() -> None:
    """Adjusted p-values fall by rank: the smallest times 4, the next times 3, and never below the one before."""
    shifts = np.array([0.05, 0.035, 0.04, 0.06])
    base = launches(100.0, 101.0, 99.0).repeat(4, axis=0)
    new = base + shifts[:, None, None]
    alone = np.array([judged(base[[i]], new[[i]])["p"].item() for i in range(4)])
    ranked = np.sort(alone) * [4, 3, 2, 1]
    expected = np.minimum(np.maximum.accumulate(ranked), 1)[np.argsort(np.argsort(alone))]
    assert judged(base, new)["p"].to_numpy() == pytest.approx(expected)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_base=st.integers(3, 6),
    n_new=st.integers(3, 6),
    sd_base=st.floats(0.002, 0.05),
    sd_new=st.floats(0.002, 0.05),
    ratio=st.floats(0.5, 2),
)
def test_the_interval_covers_the_true_ratio(
    seed: int, n_base: int, n_new: int, sd_base: float, sd_new: float, ratio: float
) -> None:
    """In 95 % of 1000 pairs; Welch's approximation is off by up to 1.5 %, chance by 4 times 0.7 %."""
    base = drawn(seed, (1000, n_base, 3), sd_base, 0.004)
    new = drawn(seed + 1, (1000, n_new, 3), sd_new, 0.004, ratio)
    result = judged(base, new)
    covered = ((result["ratio_low"] <= ratio) & (ratio <= result["ratio_high"])).mean()
    assert covered >= 0.95 - 0.015 - 4 * 0.007


@pytest.mark.parametrize("n_launches", [1, 2])
@pytest.mark.parametrize("within_sd", [0.001, 0.05])
def test_the_floor_covers_launches_that_vary_as_ten_real_ones_did(n_launches: int, within_sd: float) -> None:
    base, new = (drawn(seed, (2000, n_launches, 5), 0.0065, within_sd) for seed in (1, 2))
    result = judged(base, new)
    assert ((result["ratio_low"] <= 1) & (result["ratio_high"] >= 1)).mean() >= 0.95


@pytest.mark.parametrize("n_launches", [1, 3])
def test_false_alarms_are_rarer_than_in_one_whole_comparison_of_twenty(n_launches: int) -> None:
    """Of 100 comparisons of 12 equal cases each, at no minimum effect; chance gives 4 standard deviations."""
    base, new = (drawn(seed, (100, 12 * n_launches, 5), 0.0065, 0.004) for seed in (1, 2))
    alarms = 0
    for one, other in zip(base, new, strict=True):
        verdicts = judged(*(side.reshape(12, n_launches, 5) for side in (one, other)), 0.0)["verdict"]
        alarms += verdicts.isin(["faster", "slower"]).any()
    assert alarms <= 100 * 0.05 + 4 * (100 * 0.05 * 0.95) ** 0.5


def test_one_pair_has_a_verdict_where_its_interval_clears_the_minimum_effect() -> None:
    base, new = drawn(1, (60, 3, 3), 0.01, 0.004), drawn(2, (60, 3, 3), 0.01, 0.004, 1.06)
    for i in range(60):
        result = judged(base[[i]], new[[i]]).iloc[0]
        assert (result["verdict"] == "faster") == (result["ratio_low"] > 1.02)


def test_a_ratio_at_the_minimum_effect_is_rarely_called() -> None:
    """It is the border: one side of a 95 % interval."""
    result = judged(drawn(1, (3000, 4, 3), 0.01, 0.004), drawn(2, (3000, 4, 3), 0.01, 0.004, 1.02))
    assert (result["ratio_low"] > 1.02).mean() <= 0.025 + 4 * (0.025 / 3000) ** 0.5
