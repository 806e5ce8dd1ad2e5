"""What a pencil would write."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.amounts import about, counted, significant, size

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (32_768, "32.8 kB"),
        (49_432_576, "49.4 MB"),
        (999_499_999, "999 MB"),
        (999_500_000, "1.00 GB"),
        (2_471_628_800, "2.47 GB"),
        (141_107_000_000, "141 GB"),
        (1_340_000_000_000, "1.34 TB"),
        (2 * 10**17, "200000 TB"),
    ],
)
def test_sizes(n_bytes: int, text: str) -> None:
    assert size(n_bytes) == text


@given(st.integers(1, 10**17))
def test_a_size_is_never_zero_and_within_a_half_per_cent(n_bytes: int) -> None:
    match = re.fullmatch(r"(?P<number>\d+(\.\d+)?) (?P<unit>\w+)", size(n_bytes))
    assert match
    assert float(match["number"]) * UNITS[match["unit"]] == pytest.approx(n_bytes, rel=0.0051)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.0000123, 3, "0.0000123"), (0.0995, 2, "0.10"), (1.5, 3, "1.50"), (99.97, 3, "100"), (1511.4, 3, "1511")],
)
def test_significant_digits(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text


def test_one_is_not_many() -> None:
    assert [counted(n, "case") for n in (0, 1, 2, "1", "1,024")] == [
        *("0 cases", "1 case", "2 cases", "1 case", "1,024 cases")
    ]
    assert [counted(n, "case is", "cases are") for n in (1, 11)] == ["1 case is", "11 cases are"]


def test_large_numbers_are_short() -> None:
    numbers = (0, 512, 999_499, 999_500, 24_716_288, 1_235_814_400, 70_553_706_496, 671_026_419_200, 10**12)
    assert [about(n) for n in numbers] == [
        *("0", "512", "999 k", "1.00 M", "24.7 M", "1.24 B", "70.6 B", "671 B", "1.00 T")
    ]
