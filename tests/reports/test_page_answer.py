"""The sentences, against rates that a pencil can check."""

from typing import Any

from reports.page.answer import answer
from reports.summary import summarise
from reports.words import words


def _answer(gathered: Any, *rows: dict[str, Any], lang: str = "en") -> list[str]:
    found = gathered(*rows)
    return answer(found, summarise(found.own), words(lang))


def test_machines_are_told_fastest_first_with_their_share_of_the_ceiling(gathered: Any, make_row: Any) -> None:
    fast = {"machine": "M5 Ultra", "decode_tok_s": 95.0, "decode_ceiling_tok_s": 100.0, "bandwidth_measured_gbs": 200.0}
    told = _answer(gathered, make_row(machine="spark"), make_row(**fast), make_row(machine="M5 Ultra", backend="mlx"))
    assert told[0] == (
        "M5 Ultra decodes llama-3.2-1b bf16 at 95.00 tok/s with torch, 95 % of what its memory allows (100.0 tok/s)."
    )
    assert told[1].startswith("spark decodes llama-3.2-1b bf16 at 40.00 tok/s with torch, 80 % ")
    assert told[2] == "M5 Ultra decodes 2.38 times as fast as spark."
    assert told[3] == "Closest to its ceiling is M5 Ultra with torch: 95 %."
    # 2 GB at 200 GB/s are 10 ms of 10.53.
    assert "of 10.53 ms a token, reading the weights takes 10.00 ms and the KV cache 0 ms" in told[4]


def test_a_contradicted_rate_is_told_only_where_there_is_no_other(gathered: Any, make_row: Any) -> None:
    right, wrong = [1.0] * 16, [9.0] * 16
    trusted = [make_row(backend=b, probe_logits=right, decode_tok_s=r) for b, r in (("torch", 30.0), ("mlx", 31.0))]
    doubtful = make_row(backend="llama.cpp", probe_logits=wrong, decode_tok_s=45.0)
    assert "31.00 tok/s with mlx" in _answer(gathered, *trusted, doubtful)[0]
    alone = [doubtful | {"machine": "other"}, *trusted]
    sentence = next(s for s in _answer(gathered, *alone) if s.startswith("other"))
    assert sentence.endswith("Its logits agree with no other engine's, so it may compute something else.")


def test_ceilings_that_are_missing_from_the_vendor_or_too_low(gathered: Any, make_row: Any) -> None:
    none = {"decode_ceiling_tok_s": None, "mbu": None}
    assert "so neither is its ceiling" in _answer(gathered, make_row(**none))[0]
    assert (
        "64 % of what its memory would allow at the vendor's bandwidth (62.50 tok/s)"
        in (_answer(gathered, make_row(**none, decode_ceiling_spec_tok_s=62.5))[0])
    )
    assert "more than the 50.00 tok/s" in _answer(gathered, make_row(decode_tok_s=60.0))[0]
    told = _answer(gathered, make_row(decode_ceiling_bound="compute"))
    assert "80 % of what its matrix products allow (50.00 tok/s)" in told[0]
    assert not any(sentence.startswith("Why") for sentence in told)


def test_machines_without_the_common_workload_are_told_by_their_own(gathered: Any, make_row: Any) -> None:
    told = _answer(gathered, *(make_row(machine=m) for m in "ab"), make_row(machine="c", model="gpt2"))
    assert sum(sentence.startswith("The workload: 512 prompt tokens after 0") for sentence in told) == 2
    assert any(sentence.startswith("c decodes gpt2 bf16") for sentence in told)


def test_without_any_rate_the_reason_comes_first(gathered: Any, make_row: Any) -> None:
    failed = make_row(status="failed", error="no", decode_tok_s=None)
    assert _answer(gathered) == ["There is no row in what was given, so there is nothing to report. Run: tokenroof run"]
    assert _answer(gathered, failed)[0].startswith("Every repetition failed (1 in all)")
    assert _answer(gathered, make_row(n_gen=0, decode_tok_s=None))[0].startswith("No decode rate was measured")
    published = make_row(provenance="published", source="https://example.org")
    assert _answer(gathered, published)[0].startswith("Nothing was measured here: all rows are rates that others")
    uncached = make_row(kv_cache="off")
    assert _answer(gathered, uncached)[0].startswith("No decode rate was measured with the KV cache, only without it")
    assert _answer(gathered, make_row(comparable="no", comparable_why="x"))[0].startswith("No row counts (of 1)")
    assert "すべて失敗" in _answer(gathered, failed, lang="ja")[0]


def test_failures_and_left_out_rows_are_counted(gathered: Any, make_row: Any) -> None:
    failed = make_row(status="failed", error="no", decode_tok_s=None)
    told = _answer(gathered, make_row(), failed, make_row(ttft_s=-1.0), make_row(comparable="no"))
    assert told[-2:] == [
        "Of 2 repetitions, 1 failed.",
        "Rows left out of all rates: 2 (1 not comparable, 1 with a cell that cannot be).",
    ]
