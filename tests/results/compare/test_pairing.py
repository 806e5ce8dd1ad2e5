import itertools

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from results.compare.pairing import pair

WORK, RUNNER = ["model", "n_gen"], ["machine", "version", "threads"]
FIELDS = ["side", *WORK, *RUNNER]
Line = tuple[int, str, int, str, str, int]


def paired(*lines: Line, unusable: tuple[int, ...] = ()) -> tuple[list[tuple[int, int]], dict[int, str]]:
    usable = np.array([i not in unusable for i in range(len(lines))])
    pairs, unpaired = pair(pd.DataFrame(list(lines), columns=FIELDS), usable, WORK, RUNNER)
    return list(zip(pairs["base"].tolist(), pairs["new"].tolist(), strict=True)), unpaired["why"].to_dict()


def test_equal_lines_are_a_pair() -> None:
    assert paired((0, "llama", 128, "a", "1", 2), (1, "llama", 128, "a", "1", 2)) == ([(0, 1)], {})


def test_what_no_side_shares_is_what_is_compared() -> None:
    assert paired((0, "llama", 128, "a", "1", 2), (1, "llama", 128, "b", "2", 1)) == ([(0, 1)], {})


def test_what_the_sides_share_must_be_equal() -> None:
    """Two versions, each with one and two threads: the threads are no difference to compare."""
    one, other = ([(side, "llama", 128, "a", version, t) for t in (1, 2)] for side, version in ((0, "1"), (1, "2")))
    assert paired(*one, *reversed(other)) == ([(0, 3), (1, 2)], {})


def test_a_setting_that_only_one_side_has_stays_alone() -> None:
    lines = [(0, "llama", 128, "a", "1", 1), (0, "llama", 128, "a", "1", 2), (1, "llama", 128, "a", "1", 1)]
    pairs, why = paired(*lines)
    assert pairs == [(0, 2)]
    assert why == {1: "the nearest differs in threads 2 → 1"}


def test_several_that_could_be_meant_are_none() -> None:
    pairs, why = paired((0, "llama", 128, "a", "1", 1), (0, "llama", 128, "a", "1", 2), (1, "llama", 128, "a", "1", 4))
    assert pairs == []
    assert why == dict.fromkeys(range(3), "3 lines could be meant, which differ in threads: choose with --by")


def test_other_work_is_refused_with_the_field_that_differs() -> None:
    pairs, why = paired((0, "llama", 128, "a", "1", 2), (1, "llama", 64, "a", "2", 2), (1, "qwen", 32, "a", "1", 2))
    assert pairs == []
    assert why[0] == "the nearest differs in n_gen 128 → 64"
    assert why[1] == "the nearest differs in n_gen 128 → 64", "base first, seen from either side"
    assert why[2] == "the nearest differs in model llama → qwen, n_gen 128 → 32"


def test_an_unusable_line_has_no_partner_and_its_partner_hears_why() -> None:
    lines = (0, "llama", 128, "a", "1", 2), (1, "llama", 128, "a", "1", 2)
    assert paired(*lines, unusable=(1,)) == ([], {0: "its counterpart is left out"})
    assert paired(lines[0]) == ([], {0: "the other side has no measured row"})


def test_empty_cells_are_equal_to_each_other_only() -> None:
    lines = [(0, None, 128, "a", "1", 2), (1, None, 128, "a", "1", 2), (1, "llama", 64, "a", "1", 2)]
    pairs, why = paired(*lines)  # type: ignore[arg-type]
    assert pairs == [(0, 1)]
    assert why == {2: "the nearest differs in model (empty) → llama, n_gen 128 → 64"}


def test_long_values_are_cut() -> None:
    _, why = paired((0, 64 * "a", 128, "a", "1", 2), (1, 64 * "b", 128, "a", "1", 2))
    assert why[0] == "the nearest differs in model aaaaaaaaaaaa… → bbbbbbbbbbbb…"


LINES = st.lists(
    st.tuples(
        st.sampled_from((0, 1)), st.sampled_from("lq"), st.sampled_from((64, 128)),
        st.sampled_from("ab"), st.sampled_from("12"), st.sampled_from((1, 2, 4)),
    ),
    min_size=1, max_size=25, unique=True,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(LINES)
def test_every_line_is_in_one_pair_of_equal_work_or_has_a_reason(lines: list[Line]) -> None:
    pairs, why = paired(*lines)
    assert sorted([*itertools.chain(*pairs), *why]) == list(range(len(lines)))
    for base, new in pairs:
        assert (lines[base][0], lines[new][0]) == (0, 1)
        assert lines[base][1:3] == lines[new][1:3]


@settings(max_examples=100, deadline=None)
@given(LINES)
def test_the_other_way_round_the_pairs_are_the_same(lines: list[Line]) -> None:
    pairs, _ = paired(*lines)
    swapped, _ = paired(*((1 - line[0], *line[1:]) for line in lines))
    assert sorted((new, base) for base, new in swapped) == pairs


def test_lines_share_the_reason_by_the_first_that_differs() -> None:
    lines = [(0, "llama", 128, "a", "1", 2), (1, "llama", 64, "a", "2", 2), (1, "qwen", 32, "a", "1", 2)]
    _, unpaired = pair(pd.DataFrame(lines, columns=FIELDS), np.ones(3, bool), WORK, RUNNER)
    assert unpaired["reason"].tolist() == [f"the nearest differs in {name}" for name in ("n_gen", "n_gen", "model")]
