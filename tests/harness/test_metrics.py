import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics import metrics
from harness.workload import Case

DECODE = {"decode_tok_s", "tpot_s", "itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s"}


def test_rates_by_pencil() -> None:
    # 512 tokens in 2 s are 256 tok/s; four intervals of 0.05, 0.05, 0.05, 0.25 s are 0.4 s for 4 tokens: 10 tok/s.
    values, missing = metrics(Case(0, 512, 5), 2.0, [0.05, 0.05, 0.05, 0.25])
    assert values["prefill_tok_s"] == 256
    assert values["decode_tok_s"] == pytest.approx(10)
    assert values["tpot_s"] == pytest.approx(0.1)
    assert values["itl_p50_s"] == 0.05
    assert values["itl_max_s"] == 0.25
    assert missing == {}


def test_a_batch_counts_all_its_sequences() -> None:
    values, _ = metrics(Case(0, 100, 3, batch=4), 0.5, [0.1, 0.1])
    assert values["prefill_tok_s"] == 800
    assert values["decode_tok_s"] == pytest.approx(40)
    assert values["tpot_s"] == pytest.approx(0.1), "a sequence's own interval"


@pytest.mark.parametrize(
    ("case", "ttft_s", "itl_s", "empty", "why"),
    [
        (Case(8, 0, 4), None, [0.1] * 4, {"ttft_s", "prefill_tok_s"}, "no prompt"),
        (Case(0, 8, 0), 0.1, [], DECODE, "-n 0"),
        (Case(0, 8, 1), 0.1, [], DECODE, "-n 1"),
    ],
)
def test_what_was_not_measured_is_empty_with_a_reason(
    case: Case, ttft_s: float | None, itl_s: list[float], empty: set[str], why: str
) -> None:
    values, missing = metrics(case, ttft_s, itl_s)
    assert set(missing) == empty
    assert not empty & set(values)
    assert all(why in reason for reason in missing.values())


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=50), st.integers(1, 16))
def test_intervals_bound_their_mean_and_quantiles_rise(itl_s: list[float], batch: int) -> None:
    values, _ = metrics(Case(0, 1, len(itl_s) + 1, batch), 1.0, itl_s)
    assert min(itl_s) * 0.999999 <= values["tpot_s"] <= max(itl_s) * 1.000001
    assert values["decode_tok_s"] * values["tpot_s"] == pytest.approx(batch)
    quantiles = [values[f"itl_{name}_s"] for name in ("p50", "p90", "p99", "max")]
    assert quantiles == sorted(quantiles)
    assert quantiles[-1] == max(itl_s)
