import csv
from importlib import resources

import pytest

from harness.machine.catalog import load_catalog
from results.errors import ResultsError
from results.published import PublishedRate, comparable_rate, load_published, read_published

GIB = 2**30
TEXT = resources.files("results").joinpath("published.csv").read_text(encoding="utf-8")
ROWS = list(csv.DictReader(TEXT.splitlines()))
RATES = load_published()
BANDWIDTH = {device.id: device.bandwidth_bytes_s for device in load_catalog()}


def rate(device_id: str, model: str, quant: str, nth: int = 0) -> PublishedRate:
    return [one for one in RATES if (one.device_id, one.model, one.quant) == (device_id, model, quant)][nth]


def test_every_row_has_a_source_and_is_used_or_says_why_not():
    assert len(ROWS) == 168
    assert len(RATES) == 159
    assert all(row["source"].startswith("https://") for row in ROWS)
    assert all((row["used"] == "no") == bool(row["why_not"]) for row in ROWS)


def test_whole_runs_agentic_mixes_and_cpu_runs_on_a_gpu_are_left_out():
    unused = [row for row in ROWS if row["used"] == "no"]
    assert [row["engine"] for row in unused if row["rate_definition"].startswith("whole run")] == ["gpt-fast"] * 4
    assert sum("agentic" in row["test"] for row in unused) == 4
    assert [row["device_id"] for row in unused if "(CPU)" in row["engine"]] == ["strix-halo-395"]
    assert len(unused) == 9


def test_prefill_rates_that_cannot_be_are_left_out_with_a_reason():
    unused = [row for row in ROWS if row["pp_why_not"]]
    assert [(row["device_id"], row["pp_tok_s"]) for row in unused] == [("a100-80gb-sxm", "603.76")]
    assert rate("a100-80gb-sxm", "Llama-3-8B", "F16").prefill_tok_s is None


def test_attention_of_long_prompts_by_pencil():
    # Llama 3 8B: 32 layers of 32 heads of 128; four operations an element and key; 8192 tokens see 4096.5 in the mean.
    long = [one for one in RATES if one.prefill_attention_flops and one.model == "Llama-3-8B"]
    assert len(long) == 4
    assert {one.prefill_attention_flops for one in long} == {round(32 * 32 * 128 * 4 * 4096.5)}
    # Qwen3 4B has 36 layers of 32 heads of 128.
    assert rate("apple-m4-max-40", "Qwen3-4B-Instruct-2507", "bf16").prefill_attention_flops == 36 * 4096 * 4 * 1024.5


def test_no_rate_is_above_its_ceiling_by_more_than_the_vendors_rounding():
    shares = [one.decode_tok_s * one.step_bytes / BANDWIDTH[one.device_id] for one in RATES]
    assert max(shares) < 1.025
    assert min(shares) > 0.05


def test_definitions_by_pencil():
    assert comparable_rate(113.33, "N tokens over N-1 intervals", 128) == pytest.approx(112.4446, abs=1e-3)
    assert comparable_rate(36.2, "N tokens over N-1 intervals", None) == 36.2
    assert comparable_rate(22.31, "N over N intervals", 512) == 22.31
    assert comparable_rate(97.93, "not stated", None) == 97.93
    with pytest.raises(ValueError, match="no decode rate"):
        comparable_rate(155.58, "whole run incl. prefill", None)
    assert rate("apple-m4-max-40", "Qwen3-30B-A3B", "4bit").decode_tok_s == pytest.approx(113.33 * 127 / 128)


def test_streamed_bytes_by_pencil():
    # Llama 3 8B F16: all 8.03e9 parameters but the input embedding of 128256 x 4096.
    assert rate("rtx-4080", "Llama-3-8B", "F16").streamed_bytes == pytest.approx(
        (8.0303e9 - 128256 * 4096) * 2, rel=2e-3
    )
    # Llama 3.2 3B ties its embedding: the file is what is read.
    assert rate("rtx-5090", "Llama-3.2-3B", "Q4_K_M").streamed_bytes == pytest.approx(1.87 * GIB, rel=1e-6)
    # gpt-oss-20b: 4 of 32 experts in MXFP4 (17 bytes for 32), attention and head in Q8_0 (34 for 32).
    experts = 24 * 4 * 3 * 2880 * 2880 * 17 / 32
    attention = 24 * 2880 * (2 * 64 * 64 + 2 * 8 * 64) * 34 / 32
    head = 201088 * 2880 * 34 / 32
    assert rate("rtx-4090", "gpt-oss-20b", "MXFP4").streamed_bytes == pytest.approx(
        experts + attention + head, rel=0.01
    )
    # Qwen3 30B-A3B in MLX's 4 bit: 4.5 bits, 8 of 128 experts, 48 layers, a router, a head.
    a_layer = 2 * 2048 * 4096 + 2 * 2048 * 512 + 2048 * 128 + 8 * 3 * 2048 * 768
    expected = (48 * a_layer + 151936 * 2048) * 4.5 / 8
    assert rate("apple-m4-max-40", "Qwen3-30B-A3B", "4bit").streamed_bytes == pytest.approx(expected, rel=0.01)
    # Qwen3.8 27B: the file less the looked-up embedding and the draft layer that plain decoding does not use.
    embedding = 248320 * 5120 * 4.5 / 8
    draft = (3 * 5120 * 17408 + 5120 * (2 * 6144 + 2 * 1024 + 6144) + 2 * 5120 * 5120) * (15.93 * GIB / 27.32e9)
    expected = 15.93 * GIB - embedding - draft
    assert rate("rtx-3090", "Qwen3.8-27B", "Q4_K_M").streamed_bytes == pytest.approx(expected, rel=2e-3)


def test_kv_bytes_by_pencil():
    # Llama 2 7B: 524288 bytes a token. tg32 at depth 65536 has 65552 tokens on the mean.
    assert rate("strix-halo-395", "Llama-2-7B", "Q4_0").kv_bytes == 524288 * 65552
    # gpt-oss-120b at depth 16384: 18 layers see all, 18 a window of 128; 8 heads of 64, keys and values in 16 bits.
    at_16384 = next(one for one in RATES if one.model == "gpt-oss-120b" and abs(one.decode_tok_s - 48.03) < 1e-9)
    assert at_16384.kv_bytes == 18 * 2 * 8 * 64 * 2 * (16400 + 128)
    # Qwen3.8 27B: 16 of 64 layers keep keys and values, 48 a state of 48 heads of 128 x 128 in 32 bits.
    assert rate("rtx-3090", "Qwen3.8-27B", "Q4_K_M").kv_bytes == 16 * 2 * 4 * 256 * 2 * 200 + 48 * 48 * 128 * 128 * 4


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("tok_s", "-3", "column tok_s: '-3' is no rate"),
        ("tok_s", "nan", "column tok_s: 'nan' is no rate"),
        ("streamed_bytes", "4.5", "column streamed_bytes: '4.5' is no whole number"),
        ("streamed_bytes", "", "column streamed_bytes: '' is empty"),
        ("used", "maybe", "column used: 'maybe' is neither yes nor no"),
        ("rate_definition", "fast", "column rate_definition: 'fast' 'fast' is no known definition"),
        ("rate_definition", "whole run incl. prefill", "is no decode rate"),
    ],
)
def test_a_wrong_cell_is_named(column, cell, message):
    row = {**ROWS[0], column: cell}
    lines = [",".join(row), ",".join(row.values())]
    with pytest.raises(ResultsError, match=r"published\.csv, line 2") as error:
        read_published(lines)
    assert message in str(error.value)


def test_a_row_that_is_not_used_needs_a_reason():
    row = {**ROWS[0], "used": "no"}
    with pytest.raises(ResultsError, match="why_not"):
        read_published([",".join(row), ",".join(row.values())])
