"""llama-benchy's files, with rates from the tables of its README (a DGX Spark serving gpt-oss-120b)."""

import json
from typing import Any

import pytest

from results.errors import ResultsError
from results.importers import import_text

HEADER = (
    "model,test_name,t_s_mean,t_s_std,t_s_req_mean,t_s_req_std,peak_ts_mean,peak_ts_std,peak_ts_req_mean,"
    "peak_ts_req_std,ttfr_mean,ttfr_std,est_ppt_mean,est_ppt_std,e2e_ttft_mean,e2e_ttft_std"
)
PLAIN = f"""{HEADER}
openai/gpt-oss-120b,pp2048,8521.08,69.61,8521.08,69.61,,,,,297.14,1.97,240.36,1.97,340.65,3.49
openai/gpt-oss-120b,tg32,73.18,0.45,73.18,0.45,75.84,0.48,75.84,0.48,,,,,,
openai/gpt-oss-120b,pp2048 @ d4096,9450.36,24.73,9450.36,24.73,,,,,706.92,1.70,650.14,1.70,750.96,3.08
openai/gpt-oss-120b,tg32 @ d4096,72.22,0.83,72.22,0.83,74.81,0.86,74.81,0.86,,,,,,
"""
CACHED = f"""{HEADER}
openai/gpt-oss-120b,ctx_pp @ d4096,9259.71,76.35,9259.71,76.35,,,,,492.62,3.63,442.38,3.63,535.67,3.75
openai/gpt-oss-120b,ctx_tg @ d4096,73.28,0.80,73.28,0.80,75.93,0.82,75.93,0.82,,,,,,
openai/gpt-oss-120b,pp2048 @ d4096,7467.44,131.59,7467.44,131.59,,,,,324.59,4.84,274.34,4.84,367.60,4.95
openai/gpt-oss-120b,tg32 @ d4096,72.25,0.12,72.25,0.12,74.86,0.12,74.86,0.12,,,,,,
"""


def metric(*values: float) -> dict[str, Any]:
    return {"mean": sum(values) / len(values), "std": 0.0, "values": list(values)}


def report(*, cached: bool, **run: Any) -> str:
    benchmark = {
        "concurrency": 1, "context_size": 4096, "prompt_size": 2048, "response_size": 32,
        "is_context_prefill_phase": False, "pp_throughput": metric(7400, 7534.88), "tg_throughput": metric(72, 72.5),
        "e2e_ttft": metric(365.0, 370.2), **run,
    }  # fmt: skip
    head = {
        "version": "0.2.2", "timestamp": "2026-02-06 15:52:14Z", "latency_mode": "generation", "latency_ms": 56.8,
        "model": "openai/gpt-oss-120b", "prefix_caching_enabled": cached, "max_concurrency": 1,
    }  # fmt: skip
    return "Saving results\n" + json.dumps(head | {"benchmarks": [benchmark]}, indent=2)


def work(row: dict[str, Any]) -> tuple[int, int, int, int]:
    return row["n_depth"], row["n_prompt"], row["n_gen"], row["decode_start"]


def test_without_prefix_caching_the_context_is_part_of_the_prompt():
    """The README's own numbers say so: 6144 tokens, not 2048, in 650.14 ms are 9450 tok/s."""
    first, deep = import_text(PLAIN, "x.csv").rows
    assert [work(first), work(deep)] == [(0, 2048, 32, 2048), (0, 6144, 32, 6144)]
    assert deep["prefill_tok_s"] == pytest.approx(6144 / 0.65014, rel=0.001)
    assert [first["decode_tok_s"], deep["decode_tok_s"]] == [73.18, 72.22]
    assert first["ttft_s"] == pytest.approx(0.34065)
    assert "HTTP" in first["derived"]["ttft_s"]
    assert first["model"] == "gpt-oss-120b"


def test_with_prefix_caching_the_context_is_depth():
    imported = import_text(CACHED, "x.csv")
    context, prompt = imported.rows
    assert (context["n_depth"], context["n_prompt"], context["prefill_tok_s"]) == (0, 4096, 9259.71)
    assert "decode_tok_s" not in context  # the table does not say how many tokens ctx_tg generated
    assert imported.left_out == ["line 3: the generation after a context, of unknown length"]
    assert work(prompt) == (4096, 2048, 32, 6144)
    assert prompt["prefill_tok_s"] == pytest.approx(2048 / 0.27434, rel=0.001)


def test_json_gives_a_row_a_run():
    one, two = import_text(report(cached=True), "x.json").rows
    assert work(one) == work(two) == (4096, 2048, 32, 6144)
    assert (one["prefill_tok_s"], two["prefill_tok_s"]) == (7400, 7534.88)
    assert (one["decode_tok_s"], two["decode_tok_s"]) == (72, 72.5)
    assert (one["ttft_s"], two["ttft_s"]) == (0.365, 0.3702)
    assert (one["repetition"], two["repetition"]) == (1, 2)
    assert one["source"] == "llama-benchy 0.2.2"


def test_json_knows_whether_prefixes_were_cached():
    assert work(import_text(report(cached=False), "x.json").rows[0]) == (0, 6144, 32, 6144)
    assert work(import_text(report(cached=True, is_context_prefill_phase=True), "x").rows[0]) == (0, 4096, 32, 4096)


def test_runs_that_failed_leave_the_mean():
    (row,) = import_text(report(cached=True, tg_throughput=metric(70.0)), "x.json").rows
    assert (row["prefill_tok_s"], row["decode_tok_s"]) == (pytest.approx(7467.44), 70.0)
    assert row["derived"]["decode_tok_s"] == "mean of the runs"


def test_concurrent_requests_are_no_batch():
    imported = import_text(report(cached=True, concurrency=4), "x.json")
    assert imported.rows == []
    assert "4 concurrent requests" in imported.left_out[0]
    imported = import_text(CACHED.replace(" @ d4096", " @ d4096 (c2)"), "x.csv")
    assert imported.rows == []
    assert len(imported.left_out) == 4
    assert "concurrent" in imported.left_out[3]


def test_a_test_of_another_name_is_an_error():
    with pytest.raises(ResultsError, match=r"x.csv, line 2: test_name: 'zz9' is no test of llama-benchy"):
        import_text(PLAIN.replace("pp2048,", "zz9,", 1), "x.csv")
