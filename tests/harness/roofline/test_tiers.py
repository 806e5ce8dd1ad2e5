"""Speeds from two ends and times between them, against a pencil."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.roofline.tiers import effective_speeds, step_seconds

GB = 10**9


def test_two_ends_give_two_speeds_and_what_lies_between() -> None:
    # 12 GB: all on a host that takes 0.2 s for them, 60 GB/s; then 2 GB there and 10 GB on a GPU in 0.05 s, of which
    # the host's 2 GB take 0.0333 s: 10 GB in 0.01667 s are 600 GB/s.
    speeds = effective_speeds([[12 * GB, 0], [2 * GB, 10 * GB]], [0.2, 0.05])
    assert speeds is not None
    assert speeds == pytest.approx([60e9, 600e9])
    # Half of it on each: 0.1 s and 0.01 s.
    assert step_seconds([[6 * GB, 6 * GB], [12 * GB, 0]], speeds) == pytest.approx([0.11, 0.2])


def test_the_articles_twenty_gb_at_90_gb_a_second() -> None:
    assert step_seconds([[20 * GB, 0]], [90e9, 1800e9]) == pytest.approx([0.2222], abs=1e-4)


def test_times_that_contradict_each_other_tell_nothing() -> None:
    # The host's 6 GB alone take 0.1 s, so 0.05 s leaves the GPU less than nothing.
    assert effective_speeds([[12 * GB, 0], [6 * GB, 6 * GB]], [0.2, 0.05]) is None
    # The GPU's share would take no time at all.
    assert effective_speeds([[12 * GB, 0], [6 * GB, 6 * GB]], [0.2, 0.1]) is None


def test_splits_that_are_alike_tell_nothing() -> None:
    assert effective_speeds([[12 * GB, 0], [12 * GB, 0]], [0.2, 0.2]) is None


def test_too_few_splits() -> None:
    with pytest.raises(ValueError, match="as many splits as memories"):
        effective_speeds([[12 * GB, 1, 2], [6 * GB, 6 * GB, 1]], [0.2, 0.05])


speeds_of_two = st.tuples(st.floats(1e9, 1e13), st.floats(1e9, 1e13))


@given(speeds_of_two, st.floats(0.1, 1), st.floats(1e8, 1e12))
def test_speeds_come_back_from_the_times_they_make(true: tuple[float, float], share: float, n_bytes: float) -> None:
    table = np.array([[n_bytes, 0], [n_bytes * (1 - share), n_bytes * share]])
    found = effective_speeds(table, step_seconds(table, true))
    # Near the limits of a float, the fast memory's part of the time may vanish beside the slow one's.
    if found is not None:
        assert step_seconds(table, found) == pytest.approx(step_seconds(table, true))
        if max(true) < 1000 * min(true):
            assert found == pytest.approx(true, rel=1e-6)
    else:
        assert max(true) > 1000 * min(true)
