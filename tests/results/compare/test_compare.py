"""From rows to verdicts: real launches, made-up ones, and everything that must not be set side by side."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from results.compare.compare import Comparison, compare
from results.compare.sides import Side, sides_by
from results.errors import ResultsError

Make = Callable[..., pd.DataFrame]
BASE = ([100.0, 100.5, 99.5], [100.2, 100.7, 99.7], [99.8, 100.3, 99.3])
SLOW = tuple([rate * 0.9 for rate in launch] for launch in BASE)


def compared(base: pd.DataFrame, new: pd.DataFrame, metric: str = "decode_tok_s") -> Comparison:
    return compare([Side("base.csv", base), Side("new.csv", new)], metric=metric)


def reasons(comparison: Comparison) -> list[tuple[str, str]]:
    return list(zip(comparison.left_out["side"], comparison.left_out["why"], strict=True))


def test_a_pair_says_how_much_and_what_differs(make: Make) -> None:
    result = compared(make(*BASE), make(*SLOW, backend_version="2", engine_settings={"asked": {"n_threads": 1}}))
    pair = result.pairs.iloc[0]
    assert (pair["base"], pair["new"], pair["ratio"]) == pytest.approx((100, 90, 0.9), rel=1e-5)
    assert pair["verdict"] == "slower"
    assert pair["differs"] == "backend_version 1 → 2, n_threads 2 → 1"
    assert (pair["base_launches"], pair["base_repetitions"], pair["new_side"]) == (3, 9, "new.csv")
    assert pair["base_cv_launches_pct"] == pytest.approx(0.2, rel=0.01)
    assert result.left_out.empty


@pytest.mark.parametrize("metric", ["ttft_s", "ttft_client_s"])
def test_of_a_time_less_is_faster(make: Make, metric: str) -> None:
    base, new = (make(*BASE).assign(**{metric: seconds}) for seconds in (0.4, 0.2))
    pair = compared(base, new, metric).pairs.iloc[0]
    assert (pair["base"], pair["new"], pair["ratio"], pair["verdict"]) == pytest.approx((0.4, 0.2, 2, "faster"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "qwen"),
        ("weight_format", "f16"),
        ("weights_id", "other"),
        ("architecture", "gpt2"),
        ("kv_k_format", "f32"),
        ("kv_v_format", "f32"),
        ("n_depth", 64),
        ("n_prompt", 64),
        ("n_gen", 64),
        ("batch", 4),
        ("decode_start", 64),
        ("tokens_sha256", "other"),
        ("provenance", "imported"),
        ("weights_id", None),
    ],
)
def test_other_work_is_no_pair(make: Make, field: str, value: object) -> None:
    base = make(*BASE)
    result = compared(base, make(*SLOW, **{field: value}))
    assert result.pairs.empty
    why = f"the nearest differs in {field} {base[field].iloc[0]} → {'(empty)' if value is None else value}"
    assert reasons(result) == [("base.csv", why), ("new.csv", why)]


def test_a_build_that_computes_something_else_is_not_faster(make: Make) -> None:
    """Nobody but the old build can say so: same machine, same engine, another answer."""
    result = compared(make(*BASE), make(*BASE, backend_version="2", probe_logits=[2.0] * 8 + [1.0] * 8))
    assert result.pairs.empty
    whys = dict(reasons(result))
    assert whys["new.csv"].startswith("verified: no, differs from llama.cpp on spark (base.csv)")
    assert set(whys) == {"base.csv", "new.csv"}


def test_sides_that_agree_in_what_another_engine_calls_wrong_are_refused(make: Make) -> None:
    torch = make(*BASE, backend="torch", probe_logits=[3.0] * 16)
    both = [pd.concat([make(*BASE), torch]) for _ in range(2)]
    result = compared(*both)
    assert result.pairs.empty
    assert all(why.startswith("verified: no, differs from ") for _, why in reasons(result))


def test_the_cases_of_a_launch_share_its_probe_whatever_their_buffers(make: Make) -> None:
    rows = [
        make(*BASE, n_gen=n, engine_settings={"asked": {"n_threads": 2}, "buffers": {"kv": n}, "n_batch": n})
        for n in (32, 64)
    ]
    result = compared(pd.concat(rows), pd.concat(rows))
    assert result.pairs["n_gen"].tolist() == [32, 64]
    assert result.pairs["differs"].tolist() == ["", ""]


def test_what_a_merge_marked_is_left_out(make: Make) -> None:
    result = compared(make(*BASE, comparable="no", comparable_why="two devices, one label"), make(*BASE))
    assert result.pairs.empty
    assert reasons(result) == [
        ("base.csv", "comparable: no, two devices, one label"),
        ("new.csv", "its counterpart is left out"),
    ]


def test_what_failed_is_listed_and_its_counterpart_told(make: Make) -> None:
    cells = {"status": "failed", "error": "out of memory", "tokens_sha256": None, "kv_k_format": None}
    failed = make([np.nan] * 3, n_gen=256, **cells)
    base = pd.concat([make(*BASE), make(*BASE, n_gen=256)])
    result = compared(base, pd.concat([make(*BASE), failed]))
    assert result.pairs["n_gen"].tolist() == [128]
    assert reasons(result) == [("new.csv", "failed: out of memory (3 times)"), ("base.csv", "its counterpart failed")]


def test_a_row_without_the_metric_is_listed(make: Make) -> None:
    prefill_only = make([np.nan] * 3, n_gen=0)
    result = compared(pd.concat([make(*BASE), prefill_only]), make(*BASE))
    assert reasons(result) == [("base.csv", "has no decode_tok_s")]
    with pytest.raises(ResultsError, match="no row has a prefill_tok_s"):
        compared(make(*BASE), make(*BASE), "prefill_tok_s")


def test_settings_of_one_case_are_lines_of_their_own(make: Make) -> None:
    def both(factor: float) -> pd.DataFrame:
        return pd.concat(
            [
                make(*([rate * factor * t for rate in launch] for launch in BASE), engine_settings={"asked": {"t": t}})
                for t in (1, 2)
            ]
        )

    result = compared(both(1), both(0.9))
    assert result.pairs["base"].tolist() == pytest.approx([100, 200], rel=1e-5)
    assert result.pairs["ratio"].tolist() == pytest.approx([0.9, 0.9])


def test_runs_of_one_file_are_launches_of_their_own(make: Make) -> None:
    runs = [make([100.0 + i] * 3, run_id=f"run{i}") for i in range(3)]
    assert compared(pd.concat(runs), make(*BASE)).pairs["base_launches"].item() == 3


def test_the_mean_over_cases_is_geometric_and_of_one_engine(make: Make) -> None:
    def rates(factor: float) -> list[list[float]]:
        return [[rate * factor for rate in launch] for launch in BASE]

    base = pd.concat([make(*BASE, n_gen=n, backend=b) for n in (32, 64) for b in ("mlx", "torch")])
    factors = {(32, "mlx"): 0.5, (64, "mlx"): 2.0, (32, "torch"): 1.0, (64, "torch"): 1.21}
    new = pd.concat([make(*rates(factor), n_gen=n, backend=b) for (n, b), factor in factors.items()])
    means = compared(base, new).means.set_index("base_backend")
    assert means["ratio"].to_dict() == pytest.approx({"mlx": 1.0, "torch": 1.1})
    assert means.loc["mlx", ["cases", "least", "most", "faster", "slower"]].tolist() == pytest.approx([2, 0.5, 2, 1, 1])


def test_by_a_column_the_work_may_differ_in_it_alone(make: Make) -> None:
    rows = pd.concat([make(*BASE), make(*SLOW, weight_format="q8_0", weights_id="other"), make(*SLOW, weights_id="x")])
    sides, without = sides_by(rows, ["weight_format"])
    assert [side.name for side in sides] == ["bf16", "q8_0"]
    assert without.empty
    result = compare(sides, by=["weight_format"])
    assert result.pairs.empty, "two bf16 lines could be meant"
    sides, _ = sides_by(rows[rows["weights_id"] != "x"], ["weight_format"], "q8_0")
    pair = compare(sides, by=["weight_format"]).pairs.iloc[0]
    assert (pair["base_side"], pair["new_side"], pair["ratio"]) == ("q8_0", "bf16", pytest.approx(1 / 0.9))
    assert pair["differs"] == "weight_format q8_0 → bf16"


def test_by_weight_format_each_side_tells_its_bits_and_what_they_cost(make: Make) -> None:
    """The request for it follows from the format, and is not said twice."""
    asked = {name: {"asked": {"n_threads": 2, "weights": name}} for name in ("bf16", "q4_0")}
    cost = {"weight_bits": 4.5, "quality_kl": 0.02, "quality_top1": 0.9}
    rows = pd.concat(
        [
            make(*BASE, weight_bits=16.0, engine_settings=asked["bf16"]),
            make(*SLOW, run_id="older", weight_format="q4_0", weights_id="other", engine_settings=asked["q4_0"]),
            make(*SLOW, weight_format="q4_0", weights_id="other", engine_settings=asked["q4_0"], **cost),
        ]
    )
    pair = compare(sides_by(rows, ["weight_format"])[0], by=["weight_format"]).pairs.iloc[0]
    assert pair["differs"] == "weight_format bf16 → q4_0"
    assert (pair["base_weight_format"], pair["base_weight_bits"]) == ("bf16", 16)
    assert np.isnan(pair["base_quality_kl"])
    assert (pair["new_weight_bits"], pair["new_quality_kl"], pair["new_quality_top1"]) == (4.5, 0.02, 0.9)


def test_by_more_than_two_values_each_meets_the_base(make: Make) -> None:
    rows = pd.concat([make(*BASE, machine="a"), make(*SLOW, machine="b"), make(*BASE, machine="c", n_gen=64)])
    sides, _ = sides_by(rows, ["machine"])
    result = compare(sides, by=["machine"])
    assert result.pairs[["base_machine", "new_machine"]].to_numpy().tolist() == [["a", "b"]]
    left_out = result.left_out[["side", "against", "why"]].to_numpy().tolist()
    assert left_out == [[side, other, "the nearest differs in n_gen 128 → 64"] for side, other in ("ac", "ca")]


def test_unlike_engines_settings_are_not_set_against_each_other(make: Make) -> None:
    rows = pd.concat([make(*BASE), make(*SLOW, backend="torch", engine_settings={"asked": {"n_batch": 0}})])
    sides, _ = sides_by(rows, ["backend"])
    assert compare(sides, by=["backend"]).pairs["differs"].item() == "backend llama.cpp → torch"


def test_by_backend_16_bits_of_kv_cache_are_alike_and_8_are_not(make: Make) -> None:
    def against(kv_format: str) -> Comparison:
        other = make(*SLOW, backend="torch", kv_k_format=kv_format, kv_v_format=kv_format)
        return compare(sides_by(pd.concat([make(*BASE), other]), ["backend"])[0], by=["backend"])

    pair = against("bf16").pairs.iloc[0]
    assert pair["differs"] == "backend llama.cpp → torch, kv_k_format f16 → bf16, kv_v_format f16 → bf16"
    result = against("q8_0")
    assert result.pairs.empty
    assert result.left_out["why"].iloc[0].startswith("the nearest differs in kv_k_format f16 or bf16 → q8_0")


def _by_backend(*rows: pd.DataFrame) -> Comparison:
    return compare(sides_by(pd.concat(rows), ["backend"])[0], by=["backend"])


def test_by_backend_as_many_bits_are_the_same_work(make: Make) -> None:
    """Each engine quantises in its own way, so neither the format nor the weights can be equal."""
    ours = [make(*BASE, weight_format=form, weights_id=form) for form in ("bf16", "q4_k_m", "q8_0")]
    theirs = [make(*SLOW, backend="mlx", weight_format=form, weights_id=form) for form in ("bf16", "4bit", "8bit")]
    pairs = _by_backend(*ours, *theirs).pairs
    formats = pairs[["base_weight_format", "new_weight_format"]].to_numpy().tolist()
    assert formats == [["bf16", "bf16"], ["q4_k_m", "4bit"], ["q8_0", "8bit"]]
    assert pairs["differs"][1] == "backend llama.cpp → mlx, weight_format q4_k_m → 4bit"
    assert pairs["differs"][0] == "backend llama.cpp → mlx"


def test_4_bits_never_meet_16_nor_8(make: Make) -> None:
    few = make(*SLOW, backend="mlx", weight_format="4bit", weights_id="m")
    for form, told in (("bf16", "bf16"), ("q8_0", "8 bits")):
        result = _by_backend(make(*BASE, weight_format=form), few)
        assert result.pairs.empty
        assert result.left_out["why"].str.contains(f"weight_format {told} → 4 bits").all()


def test_of_several_formats_with_as_many_bits_none_is_chosen_silently(make: Make) -> None:
    two = [make(*BASE, weight_format=form, weights_id=form) for form in ("q4_k_m", "q4_0")]
    one = make(*SLOW, backend="mlx", weight_format="4bit", weights_id="m")
    result = _by_backend(*two, one)
    assert result.pairs.empty
    assert set(result.left_out["why"]) == {
        "3 lines could be meant, which differ in exact weight_format: choose with --by"
    }


def test_plain_weights_of_other_values_are_other_work_by_backend_too(make: Make) -> None:
    result = _by_backend(make(*BASE), make(*SLOW, backend="mlx", weights_id="other"))
    assert result.pairs.empty
    assert "weights_id w → other" in result.left_out["why"].iloc[0]


def test_with_the_kv_cache_and_without(make: Make) -> None:
    rows = pd.concat([make(*BASE), make(*SLOW, kv_cache="off", engine_mode="no cache")])
    pair = compare(sides_by(rows, ["kv_cache"])[0], by=["kv_cache"]).pairs.iloc[0]
    assert (pair["base_side"], pair["new_side"], pair["ratio"]) == ("on", "off", pytest.approx(0.9))
    assert pair["differs"].startswith("kv_cache on → off")


def test_imported_rows_are_told_apart_by_what_they_say(make: Make) -> None:
    cells = {"provenance": "imported", "engine_settings": None, "weights_id": None, "probe_logits": None}
    one, other = (pd.concat([make(*rates, n_threads=t, **cells) for t in (1, 2)]) for rates in (BASE, SLOW))
    assert compared(one, other).pairs["ratio"].tolist() == pytest.approx([0.9, 0.9])


def test_the_same_settings_twice_are_no_difference(run: Callable[[str], pd.DataFrame]) -> None:
    """Two runs of twenty launches each, in turn: prefills vary by 13 % between launches, decodes by 24 %."""
    runs = run("2 threads"), run("2 threads again")
    prefill, decode = (compared(*runs, metric=metric).pairs.iloc[0] for metric in ("prefill_tok_s", "decode_tok_s"))
    assert (prefill["differs"], prefill["base_launches"], prefill["new_launches"]) == ("", 20, 20)
    assert prefill["verdict"] == "no significant difference"
    assert decode["ratio_low"] < 1 < decode["ratio_high"]
    assert decode["verdict"] == "cannot tell"


def test_half_the_threads_are_slower(run: Callable[[str], pd.DataFrame]) -> None:
    pair = compared(run("2 threads"), run("1 thread")).pairs.iloc[0]
    assert pair["verdict"] == "slower"
    assert pair["interval_from"] == "launches"
    assert "n_threads 2 → 1" in pair["differs"]
