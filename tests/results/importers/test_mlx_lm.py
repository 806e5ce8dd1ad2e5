"""mlx-lm's two texts: real output of MLX's CPU backend."""

import re
from pathlib import Path

import pytest

from results.importers import import_file, import_text

DATA = Path(__file__).parent / "data"


def test_a_trial_is_a_row_at_our_definition():
    rows = import_file(DATA / "mlx_lm_benchmark.txt").rows
    assert [row["decode_tok_s"] for row in rows] == pytest.approx(
        [24.680 * 31 / 32, 26.339 * 31 / 32, 24.703 * 31 / 32]
    )
    assert [row["prefill_tok_s"] for row in rows] == [259.071, 341.385, 290.601]
    assert [row["repetition"] for row in rows] == [1, 2, 3]
    assert {(r["n_depth"], r["n_prompt"], r["n_gen"], r["decode_start"], r["batch"]) for r in rows} == {
        (0, 64, 32, 64, 1)
    }
    assert rows[0]["model"] == "gpt2-mini"
    assert rows[0]["peak_device_bytes"] == 52_000_000
    assert set(rows[0]["derived"]) == {"decode_tok_s", "ttft_s", "peak_device_bytes"}


def test_first_token_and_31_intervals_make_the_total_that_it_measured_apart():
    text = (DATA / "mlx_lm_benchmark.txt").read_text()
    totals = [float(found) for found in re.findall(r"total_time=([\d.]+)", text)]
    for row, total_s in zip(import_file(DATA / "mlx_lm_benchmark.txt").rows, totals, strict=True):
        assert row["ttft_s"] + 31 / row["decode_tok_s"] == pytest.approx(total_s, abs=0.01)


def test_several_sequences_are_taken_as_printed():
    row = import_file(DATA / "mlx_lm_benchmark_batch.txt").rows[0]
    assert (row["batch"], row["prefill_tok_s"], row["decode_tok_s"]) == (2, 398.453, 32.810)
    assert "ttft_s" not in row
    assert "model" not in row


def test_generate_is_read_below_the_text_that_it_generated():
    (row,) = import_file(DATA / "mlx_lm_generate.txt").rows
    assert (row["n_prompt"], row["n_gen"]) == (8, 16)
    assert row["decode_tok_s"] == pytest.approx(26.300 * 15 / 16)
    assert row["ttft_s"] == pytest.approx(8 / 104.837)


def test_one_token_has_no_interval():
    (row,) = import_text(
        "Prompt: 9 tokens, 30.000 tokens-per-sec\nGeneration: 1 tokens, 900.0 tokens-per-sec", "x"
    ).rows
    assert "decode_tok_s" not in row
    assert row["ttft_s"] == pytest.approx(0.3)


def test_a_batch_of_unknown_size_is_left_out():
    text = "".join(
        f"[batch_generate] {line}\n"
        for line in (
            "Prompt: 80 tokens, 500.000 tokens-per-sec",
            "Generation: 400 tokens, 90.000 tokens-per-sec",
            "Peak memory: 1.000 GB",
        )
    )
    imported = import_text(text, "x")
    assert imported.rows == []
    assert imported.left_out == ["line 1: a batch whose size is not told"]


def test_the_first_version_s_line_is_read_too():
    # https://github.com/ml-explore/mlx-lm/pull/396, which added the command
    text = """$ mlx_lm.benchmark --model owner/some-model -p 2048 -g 128
Running warmup..
Timing with prompt_tokens=2048 and generation_tokens=128.
Trial 1:  prompt_tps=2902.212, generation_tps=205.325, peak_memory=3.285
Averages: prompt_tps=2902.166, generation_tps=205.099, peak_memory=3.285
"""
    (row,) = import_text(text, "x").rows
    assert (row["model"], row["n_prompt"], row["n_gen"], row["batch"]) == ("some-model", 2048, 128, 1)
    assert row["decode_tok_s"] == pytest.approx(205.325 * 127 / 128)
