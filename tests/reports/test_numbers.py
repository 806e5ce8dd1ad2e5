"""What a pencil would write."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.numbers import count, gigabytes, number, number_with, percent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.831, "0.831"),
        (4.1927, "4.19"),
        (71.234, "71.23"),
        (289.44, "289.4"),
        (1234.5, "1234"),
        (0.00581, "0.00581"),
        (0.0000123, "0.0000123"),
        (-8.125, "-8.12"),
        (0, "0"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_spread_has_the_decimals_of_its_number() -> None:
    assert number_with(289.4, 32.71) == "289.4 ± 32.7"
    assert number_with(28.11, 0.7) == "28.11 ± 0.70"
    assert number_with(59.5, 0.0) == "59.50 ± 0.00"
    assert number_with(28.11, None) == number_with(28.11, math.nan) == "28.11"


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (49_152, "0.0000492"),
        (138_400_000, "0.138"),
        (450_000_000, "0.450"),
        (2_970_000_000, "2.97"),
        (16 * 10**9, "16.0"),
        (99_970_000_000, "100"),
        (128 * 10**9, "128"),
        (1_511_000_000_000, "1511"),  # a server's memory
        (0, "0.00"),
        (None, "-"),
    ],
)
def test_gigabytes(n_bytes: float | None, text: str) -> None:
    assert gigabytes(n_bytes) == text


@given(st.integers(10**7, 10**16))
def test_gigabytes_are_within_a_half_per_cent_and_without_an_exponent(n_bytes: int) -> None:
    text = gigabytes(n_bytes)
    assert re.fullmatch(r"\d+(\.\d+)?", text)
    assert float(text) * 1e9 == pytest.approx(n_bytes, rel=0.0051)


def test_counts_have_their_thousands_apart() -> None:
    assert [count(value) for value in (0, 999, 1000, 131_072.0)] == ["0", "999", "1,000", "131,072"]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((0.954, "95"), (1.2, "120"), (0.0994, "9.9"), (0.0996, "10"), (0.0531, "5.3"), (0.00996, "1.0")),
        *((0.0042, "0.4"), (0.00042, "0.04"), (3e-7, "0.00003"), (-0.0042, "-0.4"), (0, "0")),
        *((None, "-"), (math.nan, "-")),
    ],
)
def test_percents(share: float | None, text: str) -> None:
    assert percent(share) == text


@given(st.floats(1e-12, 10))
def test_some_is_never_none(share: float) -> None:
    for text in (percent(share), number(share), gigabytes(share * 1e9)):
        assert re.fullmatch(r"\d+(\.\d+)?", text), "a plain number, without an exponent"
        assert float(text) > 0
