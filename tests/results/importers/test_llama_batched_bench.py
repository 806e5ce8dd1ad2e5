"""llama-batched-bench: real output on a CPU, as a table and as JSON lines."""

import json
from pathlib import Path

import pytest

from results.errors import ResultsError
from results.importers import import_file, import_text

DATA = Path(__file__).parent / "data"


def test_the_table():
    rows = import_file(DATA / "llama_batched_bench.txt").rows
    assert [(row["n_prompt"], row["n_gen"], row["batch"]) for row in rows] == [
        (32, 16, 1), (32, 16, 2), (64, 16, 1), (64, 16, 2)
    ]  # fmt: skip
    assert [row["decode_tok_s"] for row in rows] == [2.79, 5.93, 2.78, 4.61]
    assert [row["prefill_tok_s"] for row in rows] == [74.40, 254.38, 145.50, 285.75]
    assert [row["decode_start"] for row in rows] == [32, 32, 64, 64]
    assert rows[0]["engine_settings"]["n_ubatch"] == "512"
    assert (rows[0]["n_threads"], rows[0]["flash_attn"]) == (2, "auto")


def test_times_add_up_as_the_definitions_say():
    """Time to first token and TG steps of a batch make the total that the tool measured by itself."""
    totals = [6.163, 5.652, 6.188, 7.388]
    for row, total_s in zip(import_file(DATA / "llama_batched_bench.txt").rows, totals, strict=True):
        steps_s = row["batch"] * row["n_gen"] / row["decode_tok_s"]
        assert row["ttft_s"] + steps_s == pytest.approx(total_s, rel=0.003)
        assert row["batch"] * row["n_prompt"] / row["prefill_tok_s"] == pytest.approx(row["ttft_s"], rel=0.003)


def test_a_shared_prompt_gives_no_prefill_rate_of_a_batch():
    one, two = import_file(DATA / "llama_batched_bench.jsonl").rows
    told = [json.loads(line) for line in (DATA / "llama_batched_bench.jsonl").read_text().splitlines() if line]
    assert [one["decode_tok_s"], two["decode_tok_s"]] == [line["speed_tg"] for line in told]
    assert one["prefill_tok_s"] == told[0]["speed_pp"]
    assert "prefill_tok_s" not in two
    assert two["unavailable"]["ttft_s"] == "one prompt, shared by all sequences"


def test_a_shared_prompt_shows_in_the_size_of_the_cache():
    """N_KV is PP + B·TG then; the table of an older version says it nowhere else."""
    header = "| PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |\n"
    (row,) = import_text(f"{header}| 128 | 64 | 4 | 384 | 0.1 | 1280 | 1.0 | 256 | 1.1 | 349 |\n", "x").rows
    assert "prefill_tok_s" not in row
    assert row["decode_tok_s"] == 256


def test_sequences_one_after_the_other_are_left_out():
    text = (DATA / "llama_batched_bench.txt").read_text().replace("is_tg_separate = 0", "is_tg_separate = 1")
    imported = import_text(text, "x")
    assert imported.rows == []
    assert len(imported.left_out) == 4


def test_a_line_with_a_cell_too_few_is_named():
    text = (DATA / "llama_batched_bench.txt").read_text().replace("|    32 |     16 |    1 |", "|    32 |     16 |")
    with pytest.raises(ResultsError, match="x, line 6: 9 cells under a header of 10"):
        import_text(text, "x")
