"""What follows from rows whose answer is known with a pencil, in both languages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.kv_cache import SENTENCES
from reports.words import LANGUAGES, words
from results.read import read
from results.verify import verify

Make = Callable[..., dict[str, Any]]
Tell = Callable[..., list[str]]

WHO = "torch, llama-3.2-1b, bf16"


@pytest.fixture
def tell(write_rows: Callable[..., Path]) -> Tell:
    def told(name: str, *rows: dict[str, Any], lang: str = "en") -> list[str]:
        return SENTENCES[name](verify(read(write_rows(*rows))), words(lang))

    return told


def _text(make_row: Make, off: dict[int, float], **cells: Any) -> list[dict[str, Any]]:
    """A prompt of 4 tokens; a step takes 10 ms with the cache, and by the number of answers without it."""
    common = {"n_prompt": 4, "ttft_s": 0.1, "kv_cache_bytes": 2 * 10**6} | cells
    on = [make_row(kv_cache="on", n_gen=n, tpot_s=0.01, peak_host_bytes=3 * 10**8, **common) for n in off]
    return on + [
        make_row(kv_cache="off", n_gen=n, tpot_s=s, peak_host_bytes=5 * 10**8, **common) for n, s in off.items()
    ]


def test_on_and_off(tell: Tell, make_row: Make) -> None:
    step, total, memory = tell("on-off", *_text(make_row, {3: 0.009, 9: 0.03}))
    assert step.startswith(f"{WHO}: the mean step from 5 to 12 tokens took 30.00 ms without the KV cache and 10.00 ms")
    assert "3.00 times as long (at the ceilings 1.00 times); at 12 tokens it scores 12 × 12 = 144 pairs" in step
    assert "took 0.340 s without the cache and 0.180 s with it, 1.89 times as long" in total
    # 16 pairs of the prompt; then 25 + 36 + ... + 144 = 620 without, and 5 + 6 + ... + 12 = 68 with the cache.
    assert "636 pairs in place of 84 " in total
    assert "72 tokens through the weights in place of 12" in total
    assert memory.startswith("In texts of 12 tokens and more the steps without the cache were the slower ones")
    assert "held 500.0 MB without the cache and 300.0 MB with it, 2.00 MB of which" in memory


def test_a_cache_that_saves_at_every_length_or_at_none(tell: Tell, make_row: Make) -> None:
    assert "in every text, from 6 tokens on" in tell("on-off", *_text(make_row, {3: 0.02, 9: 0.03}))[2]
    assert tell("on-off", *_text(make_row, {3: 0.02, 9: 0.01}))[2].startswith("In texts of up to 12 tokens the steps")


def test_without_ceilings_no_theory_is_told(tell: Tell, make_row: Make) -> None:
    rows = _text(make_row, {3: 0.02, 9: 0.03}, decode_ceiling_tok_s=None)
    assert all("ceilings" not in sentence for sentence in tell("on-off", *rows))


def test_memory(tell: Tell, make_row: Make) -> None:
    common = {"n_prompt": 1, "n_gen": 3, "kv_bytes_per_token": 10_000, "kv_allocated_tokens": 256}
    rows = [make_row(n_depth=depth, kv_cache_bytes=held, **common) for depth, held in ((6, 2_560_000), (96, 2_572_800))]
    (told,) = tell("memory", *rows)
    assert "for 100 tokens the KV cache holds 2.57 MB, and 2.56 MB by its formula" in told
    assert "(at most 0.500 % apart at any size)" in told
    assert told.endswith("for 10 tokens the engine makes room for 256.")


def _deep(make_row: Make, rate: float, **cells: Any) -> dict[str, Any]:
    return make_row(n_depth=96, n_prompt=0, n_gen=8, ttft_s=None, decode_tok_s=rate, **cells)


def test_formats(tell: Tell, make_row: Make) -> None:
    full = _deep(make_row, 40.0, kv_bytes_per_token=4608)
    few = {"kv_k_format": "q8_0", "kv_v_format": "q8_0", "kv_bytes_per_token": 2448}
    sizes, rates, quality = tell("formats", full, _deep(make_row, 50.0, **few))
    assert sizes == f"{WHO}: a token takes so many bytes of KV cache, scales included: bf16: 4,608; q8_0: 2,448."
    assert rates == "At 96 tokens it decodes so many tokens a second: bf16: 40.00; q8_0: 50.00."
    assert "random weights" in quality
    trained = _deep(make_row, 50.0, **few, kv_quality_kl=0.002, kv_quality_top1=0.98)
    assert tell("formats", full, trained)[2].endswith("q8_0: 0.00200 (98 %).")


def test_packages_that_store_the_same_format_are_told_apart(tell: Tell, make_row: Make) -> None:
    def row(form: str, stored: str, rate: float) -> dict[str, Any]:
        asked = {"asked": {"kv_k_format": form, "kv_v_format": form}}
        return _deep(make_row, rate, kv_k_format=stored, kv_v_format=stored, engine_settings=asked)

    forms = [("auto", "bf16", 40.0), ("quanto", "4bit", 30.0), ("hqq", "4bit", 20.0), ("8bit", "8bit-f32", 10.0)]
    rates = tell("formats", *(row(*form) for form in forms))[1]
    assert rates.endswith("bf16: 40.00; 4bit, quanto: 30.00; 4bit, hqq: 20.00; 8bit-f32: 10.00.")


def test_heads(tell: Tell, make_row: Make) -> None:
    many = _deep(make_row, 40.0, model="mini-kv6", kv_bytes_per_token=4608, decode_ceiling_tok_s=100.0)
    one = _deep(make_row, 60.0, model="mini-kv1", kv_bytes_per_token=768, decode_ceiling_tok_s=120.0)
    sizes, rates, gain = tell("heads", many, one)
    assert sizes == "torch, mini, bf16: a token takes so many bytes of KV cache: KV heads 6: 4,608; KV heads 1: 768."
    assert rates.endswith("KV heads 6: 40.00; KV heads 1: 60.00.")
    assert gain.startswith("The fewest heads keep a cache 6.00 times smaller and decode 1.50 times as fast")
    assert "(at the ceilings 1.20 times)" in gain


def test_window(tell: Tell, make_row: Make) -> None:
    def row(model: str, context: int, rate: float, read: int, held: int) -> dict[str, Any]:
        cells = {"decode_tok_s": rate, "kv_read_bytes": read * 10**6, "kv_cache_bytes": held * 10**6}
        return make_row(model=model, n_depth=context, n_prompt=0, n_gen=8, ttft_s=None, **cells)

    whole = [row("mini-window256", *cells) for cells in ((10, 48.0, 1, 2), (50, 45.0, 5, 6), (100, 40.0, 10, 11))]
    past = [row("mini-window20", *cells) for cells in ((10, 48.0, 1, 2), (50, 46.0, 2, 3), (100, 46.5, 2, 3))]
    rates, reads, keeps = tell("window", *past, *whole)
    assert rates.startswith("torch, mini, bf16: past a window of 20 tokens, from 50 to 100 tokens of context, it")
    assert "decodes 46.00 and then 46.50 tokens a second; with a window as long as the context 45.00 and then" in rates
    assert "at 50 tokens reads 2.00 MB of keys and values, at 100 tokens 2.00 MB (without the window 5.00 and" in reads
    assert "holds 3.00 and then 3.00 MB (without the window 6.00 and 11.00 MB): the engine keeps no more than" in keeps
    kept = [row("mini-window20", *cells) for cells in ((50, 46.0, 2, 6), (100, 46.5, 2, 11))]
    assert "keeps as much in layers with a window as in those without" in tell("window", *kept, *whole)[2]
    assert tell("window", *past[:2], *whole[:2]) == [], "one depth past the window tells of no change"


def test_kinds(tell: Tell, make_row: Make) -> None:
    static = {"engine_settings": {"asked": {"cache_kind": "static"}}}
    cells = {"n_depth": 8, "kv_cache_bytes": 10**6, "ttft_s": 0.2}
    ttft, rates, held = tell("kinds", make_row(**cells), make_row(**cells, **static, decode_tok_s=20.0))
    assert ttft.endswith("bf16: 200.0; bf16, static: 200.0.")
    assert rates.endswith("bf16: 40.00; bf16, static: 20.00.")
    assert held == "Megabytes of KV cache: bf16: 1.00; bf16, static: 1.00."


def _prompts(make_row: Make, kept: int) -> list[dict[str, Any]]:
    full = make_row(n_prompt=100, n_gen=1, ttft_s=0.5, prefill_ceiling_tok_s=1000.0)
    reused = [
        make_row(
            kv_cache="prefix",
            n_depth=prefix,
            n_prompt=100 - prefix,
            n_gen=1,
            ttft_s=seconds,
            prefill_ceiling_tok_s=1000.0,
            kv_kept_tokens=min(prefix, kept),
        )
        for prefix, seconds in ((0, 0.5), (80, 0.125))
    ]
    return [full, *reused]


def test_reuse(tell: Tell, make_row: Make) -> None:
    saved, by_prefix, kept = tell("reuse", *_prompts(make_row, 100))
    assert saved.startswith(
        f"{WHO}: the first token after 100 tokens came in 500.0 ms, and in 125.0 ms where the first 80"
    )
    assert "4.00 times sooner (at the ceilings 5.00 times)" in saved
    assert by_prefix == "Milliseconds by the length of the prefix: 0: 500.0; 80: 125.0."
    assert kept.startswith("Each time the engine kept the whole prefix")
    lost = tell("reuse", *_prompts(make_row, 0))[2]
    assert lost.startswith("Of a prefix of 80 tokens the engine kept 0, for it cannot cut its cache back to there")


def test_batch(tell: Tell, make_row: Make) -> None:
    rows = [
        make_row(
            n_depth=100,
            n_prompt=0,
            batch=batch,
            decode_tok_s=rate,
            streamed_bytes_per_token=8 * 10**6,
            kv_read_bytes=batch * 10**6,
            kv_cache_bytes=batch * 2 * 10**6,
            decode_ceiling_tok_s=10.0 * batch,
        )
        for batch, rate in ((1, 10.0), (2, 15.0), (4, 24.0))
    ]
    rates, share, last = tell("batch", *rows)
    assert rates.startswith(f"{WHO}, 100 tokens: ")
    assert "2.40 times as many (at the ceilings 4.00 times)" in rates
    assert "8.00 MB of weights, once for all of them, and 4.00 MB of KV cache, 33 % of the whole" in share
    assert share.endswith("both are equal at 8.00 sequences.")
    assert last.startswith("From 2 to 4 sequences the rate grew 1.60 times; each sequence then gets 6.00 tokens")


@pytest.mark.parametrize("name", SENTENCES)
def test_rows_of_other_work_tell_nothing(name: str, tell: Tell, make_row: Make) -> None:
    failed = make_row(status="failed", error="no", decode_tok_s=None, tpot_s=None, ttft_s=None, kv_cache="off")
    assert tell(name, make_row(), failed) == []


def test_each_language_says_it(tell: Tell, make_row: Make) -> None:
    for lang in LANGUAGES:
        assert len(tell("on-off", *_text(make_row, {3: 0.009, 9: 0.03}), lang=lang)) == 3
