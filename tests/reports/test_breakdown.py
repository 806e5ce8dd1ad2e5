"""Where the time went, told from rows that were made so that the answer is known."""

from typing import Any

import pandas as pd
import pytest

from reports.breakdown import breakdown_text
from reports.html import render
from reports.page.page import build
from reports.words import words

MS = 1e-3
KV_TOKEN = 131_072


def _row(depth: int, tpot_s: float, **cells: Any) -> dict[str, Any]:
    return {
        "machine": "spark",
        "backend": "torch",
        "batch": 1,
        "model": "llama",
        "weight_format": "bf16",
        "engine_settings": '{"asked": {"weights": "bf16"}}',
        "n_threads": 2,
        "n_gpu_layers": -1,
        "flash_attn": "on",
        "kv_k_format": "bf16",
        "kv_v_format": "bf16",
        "n_depth": depth,
        "n_prompt": 0,
        "n_gen": 128,
        "kv_cache": "on",
        "prompt_file": None,
        "run_id": "r",
        "launch": 1,
        "status": "ok",
        "tpot_s": tpot_s,
        "streamed_bytes_per_token": 2_000_000_000,
        "kv_read_bytes": depth * KV_TOKEN,
        "bandwidth_measured_gbs": 50.0,
        "experts_hit": None,
        "experts_hit_expected": None,
    } | cells


def _text(*rows: dict[str, Any], lang: str = "en") -> str:
    return breakdown_text(pd.DataFrame(list(rows)), words(lang))


def test_one_depth_is_split_by_the_measured_bandwidth() -> None:
    # 2 GB at 50 GB/s are 40 ms of 61.
    text = _text(_row(0, 61 * MS), _row(0, 61 * MS))
    assert text.startswith("torch, llama bf16: 61 ms a token: 40 ms is reading weights at this memory's measured speed")
    assert "21 ms is neither" in text


def test_an_even_number_of_repetitions_has_the_time_of_the_median_rate() -> None:
    # 50 and 10 tok/s: the median rate is 30 tok/s, 33.3 ms a token; the median time is 60 ms.
    text = _text(_row(0, 0.020), _row(0, 0.100))
    assert "33.3 ms a token" in text


def test_depths_tell_the_bandwidth_of_the_cache() -> None:
    # 45 ms and 1 ns for each 40 bytes: 40 GB/s.
    rows = [
        _row(depth, 45 * MS + depth * KV_TOKEN / 40e9 + jitter, launch=launch)
        for depth in (0, 4096, 8192, 16384)
        for launch, jitter in ((1, -0.01 * MS), (2, 0.01 * MS))
    ]
    text = _text(*rows)
    assert "From 4 depths: the KV cache is read at 40 GB/s (95 %: " in text
    assert "Without any context a token takes 45 ms" in text
    assert "40 ms weights, 5 ms overhead" in text


def test_three_sizes_tell_the_overhead_without_an_assumption() -> None:
    # 3 ms and 25 GB/s.
    sizes = {"a": 1e9, "b": 2e9, "c": 4e9}
    rows = [
        _row(0, 3 * MS + size / 25e9 + jitter, model=name, streamed_bytes_per_token=size, launch=launch)
        for name, size in sizes.items()
        for launch, jitter in ((1, -0.01 * MS), (2, 0.01 * MS))
    ]
    last = _text(*rows).splitlines()[-1]
    assert last.startswith("torch, bf16: From 3 model sizes: weights are read at 25 GB/s (95 %: ")
    assert "3 ms overhead" in last
    assert "sizes" not in _text(*rows[:4])


@pytest.mark.parametrize("cells", [{"status": "failed"}, {"tpot_s": None}, {"streamed_bytes_per_token": None}])
def test_rows_without_a_rate_or_a_ceiling_tell_nothing(cells: dict[str, Any]) -> None:
    assert _text(_row(0, 61 * MS) | cells) == ""


def test_other_engines_settings_and_batches_stay_apart() -> None:
    rows = [
        _row(0, 60 * MS),
        _row(0, 70 * MS, backend="mlx"),
        _row(0, 80 * MS, batch=4),
        _row(0, 90 * MS, engine_settings='{"asked": {"weights": "f16"}}'),
    ]
    found = [line.split(": ")[1].split(" a token")[0] for line in _text(*rows).splitlines()]
    assert found == ["60 ms", "90 ms", "70 ms", "80 ms"]


def test_several_batches_are_named_and_a_single_one_is_not() -> None:
    rows = [_row(0, batch * 10 * MS, batch=batch, model=model) for batch in (1, 4) for model in ("llama", "qwen")]
    assert [line.split(":")[0] for line in _text(*rows).splitlines()] == [
        "torch, llama bf16, batch 1",
        "torch, qwen bf16, batch 1",
        "torch, llama bf16, batch 4",
        "torch, qwen bf16, batch 4",
    ]
    assert _text(*rows, lang="ja").startswith("torch、llama bf16、バッチ 1: ")
    assert "batch" not in _text(*rows[:2])
    sizes = [_row(0, size * MS, batch=4, streamed_bytes_per_token=size * 1e9, model=str(size)) for size in (1, 2, 4)]
    assert _text(*sizes, _row(0, MS)).splitlines()[3].startswith("torch, bf16, batch 4: From 3 model sizes")


def test_several_settings_are_named_and_a_single_one_is_not() -> None:
    def asked(kv_format: str) -> str:
        return f'{{"asked": {{"weights": "bf16", "kv_k_format": "{kv_format}"}}}}'

    rows = [_row(0, 61 * MS, engine_settings=asked(kv_format)) for kv_format in ("f16", "q8_0")]
    first, second = _text(*rows).splitlines()
    assert first.startswith("torch, kv_k_format=f16, llama bf16: ")
    assert second.startswith("torch, kv_k_format=q8_0, llama bf16: ")
    assert _text(rows[1]).startswith("torch, llama bf16: ")


def test_two_machines_are_told_apart() -> None:
    lines = _text(_row(0, 60 * MS), _row(0, 70 * MS, machine="mac")).splitlines()
    assert [line.split(",")[0] for line in lines] == ["torch on spark", "torch on mac"]


def test_japanese_paragraphs() -> None:
    # 2 GB at 50 GB/s are 40 ms of 61; a deeper context that is not slower tells nothing of the cache.
    rows = [_row(0, 61 * MS), _row(4096, 61 * MS), _row(0, 70 * MS, machine="mac")]
    first, second = _text(*rows, lang="ja").splitlines()
    assert first.startswith("spark の torch、llama bf16: 1 トークン 61 ms のうち、")
    assert "です。この 2 通りの深さからは傾きを判断できません" in first
    assert second.startswith("mac の torch、llama bf16: 1 トークン 70 ms のうち、")


def test_a_japanese_page_tells_it_in_japanese(gathered: Any, make_row: Any) -> None:
    page = render(build(gathered(make_row()), [], words("ja"), "ja"), words("ja"))
    assert "1 トークン 25 ms のうち、" in page
    assert 'lang="en"' not in page
    assert "a token" not in page


def test_experts_that_are_hit_stand_beside_those_of_chance() -> None:
    told = {"experts_hit_expected": 29.117, "batch": 4}
    rows = [_row(0, 61 * MS, experts_hit=hit, **told) for hit in (20.0, 20.2)]
    ids = "Reading random token ids, a decode step of 4 sequences takes 20.10 different experts of a layer; if each"
    assert ids in _text(*rows)
    assert "by chance, it would take 29.12." in _text(*rows)
    text = _text(*rows, _row(0, 61 * MS, experts_hit=9.0, prompt_file="alice.txt", **told))
    assert ids in text
    assert "Reading alice.txt, a decode step of 4 sequences takes 9.00 different experts" in text
    assert "20.10 個の異なるエキスパート" in _text(*rows, lang="ja")
    alone = _row(0, 61 * MS, experts_hit=8.0, experts_hit_expected=8.0)
    assert "experts" not in _text(alone, _row(0, 61 * MS, batch=4))
