import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.student_t import half_width, two_sided_p

often_enough = settings(max_examples=40, deadline=None)
DEGREES = st.floats(1, 1e6)


@pytest.mark.parametrize(
    ("degrees", "confidence", "quantile"),
    [  # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2
        *((1, 0.95, 12.706), (2, 0.95, 4.303), (4, 0.95, 2.776), (10, 0.95, 2.228), (30, 0.95, 2.042)),
        *((1, 0.99, 63.657), (3, 0.99, 5.841), (100, 0.99, 2.626), (5, 0.90, 2.015), (math.inf, 0.95, 1.960)),
    ],
)
def test_quantiles_are_those_of_the_tables(degrees: float, confidence: float, quantile: float) -> None:
    assert half_width([degrees], confidence)[0] == pytest.approx(quantile, abs=6e-4)


@often_enough
@given(st.floats(0, 1e6))
def test_one_and_two_degrees_have_closed_forms(t: float) -> None:
    cauchy, two = two_sided_p([t, t], [1, 2])
    assert cauchy == pytest.approx(2 / math.pi * math.atan2(1, t), rel=1e-9)
    # 1 - t / sqrt(t² + 2), without the cancellation
    assert two == pytest.approx(2 / (t * t + 2) / (1 + t / math.sqrt(t * t + 2)), rel=1e-9)


@often_enough
@given(DEGREES, st.floats(0.5, 0.9999))
def test_the_quantile_is_where_that_much_is_outside(degrees: float, confidence: float) -> None:
    t = half_width([degrees], confidence)
    assert two_sided_p(t, [degrees])[0] == pytest.approx(1 - confidence, rel=1e-5)


@often_enough
@given(DEGREES, DEGREES)
def test_more_degrees_make_a_narrower_interval(one: float, other: float) -> None:
    few, many = half_width(sorted([one, other]))
    assert many <= few * (1 + 1e-9)


def test_no_distance_is_certain_and_an_endless_one_impossible() -> None:
    assert two_sided_p([0, np.inf], [3, 3]) == pytest.approx([1, 0])
