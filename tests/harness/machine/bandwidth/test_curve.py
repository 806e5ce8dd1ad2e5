"""Interpolation worked out by hand, and what must hold of every curve."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine.bandwidth.curve import Curve, Point, Rate

MIB, GIB = 2**20, 2**30
GB_S = 10**9


def _curve(points: dict[int, float]) -> Curve:
    return Curve(tuple(Point(size, {"xor": Rate((rate,))}) for size, rate in points.items()))


def _rising(n: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 2**40), min_size=n, unique=True).map(sorted)


curves = _rising(1).flatmap(
    lambda sizes: st.lists(st.floats(1e6, 1e13), min_size=len(sizes), max_size=len(sizes)).map(
        lambda rates: _curve(dict(zip(sizes, rates, strict=True)))
    )
)


def test_a_model_in_cache_decodes_at_the_caches_bandwidth() -> None:
    # Log-log: half way between 1 MiB and 1 GiB is 32 MiB, and the geometric mean of 160 and 40 is 80.
    curve = _curve({MIB: 160 * GB_S, GIB: 40 * GB_S})
    assert curve.at(32 * MIB) == pytest.approx(80 * GB_S)
    assert curve.at(MIB) == 160 * GB_S
    assert curve.at(GIB) == 40 * GB_S


def test_beyond_the_ends_the_curve_is_flat() -> None:
    curve = _curve({MIB: 160 * GB_S, GIB: 40 * GB_S})
    assert curve.at(1) == curve.at(0) == 160 * GB_S
    assert curve.at(100 * GIB) == 40 * GB_S


def test_a_small_set_is_never_slower_than_a_large_one() -> None:
    # On a GPU, launching a kernel takes longer than reading 1 MiB.
    curve = _curve({MIB: 50 * GB_S, 4 * MIB: 200 * GB_S, 16 * MIB: 100 * GB_S})
    assert curve.at(MIB) == curve.at(2 * MIB) == curve.at(4 * MIB) == 200 * GB_S
    assert curve.at(8 * MIB) == pytest.approx(math.sqrt(200 * 100) * GB_S)


@given(curves, st.floats(0, 2**41), st.floats(0, 2**41))
def test_more_bytes_are_never_read_faster(curve: Curve, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert curve.at(small) >= curve.at(large) * (1 - 1e-12)


@given(curves)
def test_no_point_lies_above_the_curve(curve: Curve) -> None:
    for point in curve.points:
        assert curve.at(point.working_set_bytes) >= point.best_bytes_s


@given(_rising(2), st.data())
def test_between_neighbours_lies_between_their_values(sizes: list[int], data: st.DataObject) -> None:
    falling = sorted(data.draw(st.lists(st.floats(1e6, 1e13), min_size=len(sizes), max_size=len(sizes))), reverse=True)
    curve = _curve(dict(zip(sizes, falling, strict=True)))
    left = data.draw(st.integers(0, len(sizes) - 2))
    size = data.draw(st.integers(sizes[left], sizes[left + 1]))
    assert falling[left + 1] * (1 - 1e-9) <= curve.at(size) <= falling[left] * (1 + 1e-9)


def test_the_best_kernel_makes_the_point() -> None:
    point = Point(MIB, {"sum": Rate((24.0, 23.0, 24.0)), "xor": Rate((30.0, 35.0, 34.0))})
    assert (point.kernel, point.best_bytes_s, point.median_bytes_s) == ("xor", 35.0, 34.0)


@pytest.mark.parametrize(("samples", "stable"), [((35.0, 34.0, 35.0), True), ((35.0, 31.4, 20.0), False)])
def test_a_curve_is_stable_where_the_usual_sample_is_near_the_best(samples: tuple[float, ...], stable: bool) -> None:
    # 0.9 · 35 = 31.5
    assert Curve((Point(MIB, {"xor": Rate(samples)}),)).stable is stable


@pytest.mark.parametrize("samples", [(), (0.0,), (-1.0,), (math.nan,), (math.inf, 1.0)])
def test_a_rate_is_a_positive_number(samples: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="samples above zero"):
        Rate(samples)


@pytest.mark.parametrize("sizes", [[], [2, 1], [1, 1]])
def test_a_curve_ascends(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        Curve(tuple(Point(size, {"xor": Rate((1.0,))}) for size in sizes))
