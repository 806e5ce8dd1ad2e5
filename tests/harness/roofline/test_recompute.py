"""Decode without a KV cache, by a pencil."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.models.artifact_weights import weights_of
from harness.models.source import resolve
from harness.roofline.ceiling import Memory, decode_ceiling, whole
from harness.roofline.recompute import recompute_ceiling, score_pairs, text_score_pairs, text_tokens

WEIGHTS = weights_of(resolve("gpt2-mini"), "bf16")
BODY = 3 * (12 * 384**2 + 13 * 384) + 2 * 384
HEAD = 50257 * 384
STREAMED = 2 * (BODY + HEAD)


def _flops(n: int) -> int:
    """Two a weight and token, the head once, and four a layer, element of a query and pair."""
    return 2 * n * BODY + 2 * HEAD + 4 * 3 * 384 * n * (n + 1) // 2


def test_a_step_scores_every_pair_or_the_last_row_of_them() -> None:
    assert score_pairs(240, kv_cache=False) == 57_600
    assert score_pairs(240, kv_cache=True) == 240


def test_a_text_of_two_tokens_and_three_answers() -> None:
    # The prompt: 2 x 2. Then steps at 3 and 4 tokens.
    assert text_score_pairs(2, 3, kv_cache=True) == 4 + 3 + 4
    assert text_score_pairs(2, 3, kv_cache=False) == 4 + 9 + 16
    assert text_tokens(2, 3, kv_cache=True) == 2 + 1 + 1
    assert text_tokens(2, 3, kv_cache=False) == 2 + 3 + 4


@given(st.integers(1, 200), st.integers(1, 200))
def test_sums_are_the_closed_forms(prompt: int, outputs: int) -> None:
    last = prompt + outputs - 1

    def squares(n: int) -> int:
        return n * (n + 1) * (2 * n + 1) // 6

    assert text_score_pairs(prompt, outputs, kv_cache=False) == squares(last) - squares(prompt - 1)
    assert text_tokens(prompt, outputs, kv_cache=False) == (last * (last + 1) - prompt * (prompt - 1)) // 2
    assert text_tokens(prompt, outputs, kv_cache=True) == last


def test_a_long_prefix_is_bound_by_its_operations() -> None:
    ceiling = recompute_ceiling(whole(WEIGHTS, Memory("ram", 40e9, 1e11)), first=200, n_steps=2)
    assert ceiling is not None
    assert ceiling.tok_s == pytest.approx(2 / ((_flops(200) + _flops(201)) / 1e11), rel=1e-3)
    assert ceiling.bound == "compute"


def test_a_short_prefix_costs_no_more_than_reading_the_weights() -> None:
    shares = whole(WEIGHTS, Memory("ram", 40e9, 1e13))
    ceiling = recompute_ceiling(shares, first=2, n_steps=3)
    assert ceiling is not None
    assert ceiling.tok_s == pytest.approx(40e9 / STREAMED, rel=1e-3)
    assert ceiling.bound == "memory"
    assert ceiling.tok_s > decode_ceiling(shares, decode_start=2, n_steps=3).tok_s, "there is no cache to read"


def test_many_steps_are_as_exact_as_few() -> None:
    shares = whole(WEIGHTS, Memory("ram", 40e9, 1e11))
    ceiling = recompute_ceiling(shares, first=1, n_steps=1000, batch=2)
    exact = sum(max(2 * _flops(n) / 1e11, STREAMED / 40e9) for n in range(1, 1001))
    assert ceiling is not None
    assert ceiling.tok_s == pytest.approx(2 * 1000 / exact, rel=2e-3)


def test_without_a_matrix_rate_there_is_none() -> None:
    assert recompute_ceiling(whole(WEIGHTS, Memory("ram", 40e9)), first=1, n_steps=2) is None
    with pytest.raises(ValueError, match="n_steps"):
        recompute_ceiling(whole(WEIGHTS, Memory("ram", 40e9, 1e11)), first=1, n_steps=0)
