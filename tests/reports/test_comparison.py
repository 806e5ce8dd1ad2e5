"""What people and programs read of a comparison: by hand-made lines, so that each number is known."""

import csv
import json

import pandas as pd
import pytest

from reports.comparison import render
from results.compare.compare import Comparison
from results.compare.verdicts import VERDICTS

SIDE = {"machine": "spark", "backend": "llama.cpp", "launches": 3, "repetitions": 15, "outliers": 0}
SIDE |= {"weight_format": "bf16", "weight_bits": 16.0, "quality_kl": None, "quality_top1": None}
NOISE = {"cv_launches_pct": 0.61, "cv_within_pct": 12.4, "trend_pct": 0.1, "trend_low_pct": -1.0, "trend_high_pct": 1.2}
LEFT_OUT = [
    "side",
    "against",
    "machine",
    "backend",
    "model",
    "weight_format",
    "n_depth",
    "n_prompt",
    "n_gen",
    "batch",
    "kv_cache",
    "prompt_file",
    "why",
    "reason",
]
MEANS = [
    *("base_side", "new_side", "base_machine", "base_backend", "new_machine", "new_backend"),
    *("cases", "ratio", "least", "most"),
]


def pair(**cells: object) -> dict[str, object]:
    sides = {f"{side}_{name}": value for side in ("base", "new") for name, value in (SIDE | NOISE).items()}
    return {
        "model": "llama-3.2-1b", "weight_format": "bf16", "n_depth": 0, "n_prompt": 512, "n_gen": 128, "batch": 1,
        "kv_cache": "on", "prompt_file": None,
        "differs": "n_threads 2 → 1", **sides, "base_side": "base.csv", "new_side": "new.csv",
        "base": 16.58, "new": 8.29, "ratio": 0.5, "ratio_low": 0.48, "ratio_high": 0.52, "interval_from": "launches",
        "p": 0.001, "verdict": "slower", "verdict_why": "",
    } | cells  # fmt: skip


def left_out(**cells: object) -> dict[str, object]:
    values = [
        "new.csv",
        "base.csv",
        "spark",
        "torch",
        "llama-3.2-1b",
        "bf16",
        0,
        512,
        128,
        1,
        "on",
        None,
        *("the nearest differs in x",) * 2,
    ]
    return dict(zip(LEFT_OUT, values, strict=True)) | cells


def comparison(
    *pairs: dict[str, object],
    out: tuple[dict[str, object], ...] = (),
    means: tuple[dict[str, object], ...] = (),
    metric: str = "decode_tok_s",
    sides: tuple[str, ...] = ("base.csv", "new.csv"),
) -> Comparison:
    return Comparison(
        metric,
        0.02,
        sides,
        pd.DataFrame(list(pairs), columns=list(pair())).astype({"base_launches": "Int64"}),
        pd.DataFrame(list(out), columns=LEFT_OUT),
        pd.DataFrame(list(means), columns=[*MEANS, *VERDICTS]),
    )


def flat(text: str) -> str:
    return " ".join(text.split())


def line_of(text: str, start: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(start)).split()


def test_a_pair_is_a_line_of_rates_ratio_interval_noise_and_verdict() -> None:
    text = render(comparison(pair()), "table")
    assert text.startswith("decode_tok_s; base: base.csv; new: new.csv\n")
    assert "llama-3.2-1b, bf16, llama.cpp, spark: n_threads 2 → 1" in text
    case, numbers = ["p512", "n128", "d0"], ["16.58", "8.29", "0.500", "0.480–0.520", "3,", "3"]
    assert line_of(text, "p512") == [*case, *numbers, "0.6,", "12", "0.6,", "12", "slower"]
    assert "Welch's t" in text
    assert "fewer than" not in text


def test_a_time_is_in_ms_and_its_ratio_is_of_speed() -> None:
    text = render(comparison(pair(base=0.4, new=0.2, ratio=2.0), metric="ttft_s"), "table")
    assert line_of(text, "p512")[3:6] == ["400.0", "200.0", "2.000"]
    assert "speed ratio: base / new" in text


def test_an_assumed_spread_is_marked_and_stated() -> None:
    few = pair(interval_from="floor", base_launches=1, base_cv_launches_pct=None)
    text = render(comparison(few), "table")
    assert "~0.480–0.520" in text
    assert "-, 12" in text
    assert "one launch is taken to vary by a standard deviation of 1 %" in flat(text)
    assert "Welch" not in text


def test_what_differs_makes_a_table_of_its_own() -> None:
    text = render(comparison(pair(), pair(differs="", n_gen=64)), "table")
    assert "spark: n_threads 2 → 1" in text
    assert "spark: the same settings" in text
    other = pair(new_machine="mac", new_backend="mlx", differs="machine spark → mac, backend llama.cpp → mlx")
    assert "llama-3.2-1b, bf16: machine spark → mac" in render(comparison(other), "table")


def test_unequal_formats_tell_their_bits_and_what_they_cost() -> None:
    cost = {"new_weight_bits": 4.85, "new_quality_kl": 0.0213, "new_quality_top1": 0.9375}
    of_formats = pair(differs="weight_format bf16 → q4_k_m", new_weight_format="q4_k_m", **cost)
    text = flat(render(comparison(of_formats, of_formats | {"n_gen": 64}), "table"))
    assert "llama-3.2-1b, llama.cpp, spark: weight_format bf16 → q4_k_m" in text
    told = "true bits a weight 16.00 → 4.85; KL divergence from unquantised - → 0.021 nats, same first choice - → 94 %"
    assert text.count(told) == 1, "once for all cases"
    unknown = render(comparison(of_formats | {"new_quality_kl": None, "base_weight_bits": None}), "md")
    assert "true bits a weight - → 4.85; what they cost in quality was not measured" in flat(unknown)
    assert "true bits" not in render(comparison(pair()), "table")


def test_trend_outliers_and_doubt_are_said_in_words() -> None:
    text = flat(
        render(
            comparison(
                pair(
                    base_trend_pct=-1.2, base_trend_low_pct=-1.6, base_trend_high_pct=-0.8, new_outliers=2,
                    verdict="cannot tell", verdict_why="a difference of 10 % lies in the interval",
                )
            ),
            "table",
        )
    )  # fmt: skip
    assert "p512 n128 d0: cannot tell: a difference of 10 % lies in the interval" in text
    assert "p512 n128 d0, base: 1.2 % (-1.6 to -0.8) slower from one repetition to the next: heat?" in text
    assert "p512 n128 d0, new: 2 of 15 repetitions far from their launch's median" in text


def test_two_repetitions_show_no_trend() -> None:
    """A line goes through any two points: there is a slope, and no interval."""
    few = {"trend_low_pct": None, "trend_high_pct": None, "trend_pct": 5.0, "launches": 1, "repetitions": 2}
    text = render(
        comparison(pair(**{f"{side}_{name}": few[name] for side in ("base", "new") for name in few})), "table"
    )
    assert "from one repetition to the next" not in text


def test_a_trend_that_may_be_none_is_not_said() -> None:
    assert "heat" not in render(comparison(pair()), "table")


def test_what_is_left_out_is_listed_by_its_reason() -> None:
    lines = left_out(), left_out(n_gen=64), left_out(why="failed: oom", reason="failed: oom")
    text = flat(render(comparison(out=lines), "table"))
    who = "new.csv: llama-3.2-1b, bf16, torch, spark"
    assert f"not paired, 2 cases: the nearest differs in x: {who}, p512 n128 d0, p512 n64 d0" in text
    assert f"not paired, 1 case: failed: oom: {who}, p512 n128 d0" in text


def test_many_reasons_of_one_kind_are_one_line_with_the_first_examples() -> None:
    lines = [
        left_out(
            model=f"model-{i // 5}", n_gen=8 + i, why=f"the nearest differs in n_gen {8 + i} → 128", reason="n_gen"
        )
        for i in range(30)
    ]
    told = [line for line in render(comparison(out=lines), "md").splitlines() if line.startswith("not paired")]
    who = [f"new.csv: model-{i}, bf16, torch, spark" for i in range(3)]
    cases = [f"{', '.join(f'p512 n{8 + 5 * i + k} d0' for k in range(3))} and 2 more" for i in range(3)]
    listed = "; ".join(f"{one}, {some}" for one, some in zip(who, cases, strict=True))
    assert told == [f"not paired, 30 cases: n_gen: {listed} and 3 more"]
    assert [line["why"] for line in json.loads(render(comparison(out=lines), "json"))["left_out"]] == [
        line["why"] for line in lines
    ]


def test_the_mean_stands_below_several_cases() -> None:
    values = ["base.csv", "new.csv", "spark", "torch", "spark", "mlx", 6, 0.9, 0.5, 1.1, 0, 4, 1, 1]
    means = dict(zip([*MEANS, *VERDICTS], values, strict=True))
    text = flat(render(comparison(pair(), means=(means,)), "table"))
    assert (
        "base.csv → new.csv, torch on spark → mlx on spark: geometric mean of 6 cases 0.900 (0.500 to 1.100): "
        "4 slower, 1 no significant difference, 1 cannot tell"
    ) in text
    assert "geometric mean of 1" not in render(comparison(pair(), means=(means | {"cases": 1},)), "table")


@pytest.mark.parametrize(("low", "high", "told"), [(0.48, 0.52, "0.480–0.520"), (1e-4, 5.6e9, "any"), (0, 1, "any")])
def test_an_interval_that_allows_nearly_any_ratio_has_no_digits(low: float, high: float, told: str) -> None:
    text = render(comparison(pair(ratio_low=low, ratio_high=high)), "md")
    assert f" {told} " in text


def test_markdown_holds_a_table_and_no_markup_of_others() -> None:
    text = render(comparison(pair(model="a|b<script>")), "md")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0].startswith("| case | base tok/s | new tok/s | speed ratio |")
    assert {line.count("|") for line in rows} == {10}
    assert "<script>" not in text


def test_programs_get_everything() -> None:
    result = comparison(pair(base_cv_launches_pct=None), out=(left_out(),))
    document = json.loads(render(result, "json"))
    assert document["pairs"] == [pair(base_cv_launches_pct=None)]
    assert document["left_out"] == [left_out()]
    assert (document["metric"], document["min_effect"], document["launch_floor"]) == ("decode_tok_s", 0.02, 0.01)
    assert document["sides"] == ["base.csv", "new.csv"]


def test_csv_has_a_row_a_pair_and_a_row_a_line_without() -> None:
    lines = left_out(), left_out(side="base.csv", against="new.csv", model="=cmd()")
    first, second, third = csv.DictReader(render(comparison(pair(), out=lines), "csv").splitlines())
    assert (first["verdict"], float(first["ratio"]), first["base_launches"]) == ("slower", 0.5, "3")
    assert (second["verdict"], second["verdict_why"]) == ("not paired", "the nearest differs in x")
    assert (second["new_side"], second["new_backend"], second["base_side"]) == ("new.csv", "torch", "base.csv")
    assert (third["base_side"], third["base_machine"], third["new_machine"]) == ("base.csv", "spark", "")
    assert third["model"] == "'=cmd()", "no formula in a spreadsheet"


@pytest.mark.parametrize("form", ["table", "md", "json", "csv"])
def test_nothing_to_say_is_no_error(form: str) -> None:
    assert render(comparison(), form)
