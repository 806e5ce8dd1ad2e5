"""Sentences that claim no more than they may, in both languages."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from harness.roofline.breakdown import fit_sizes
from reports.breakdown_sentences import sentences, size_sentence
from reports.words import words

GB = 1e9
ENGLISH, JAPANESE = words("en"), words("ja")


def test_words_for_one_depth() -> None:
    (text,) = sentences([0.07 * GB], [0.061], ENGLISH, streamed_bytes=1.19 * GB, bandwidth_bytes_s=35 * GB)
    assert text.startswith(
        "61 ms a token: 34 ms is reading weights at this memory's measured speed (35 GB/s), "
        "2 ms is reading the KV cache at that speed, 25 ms is neither"
    )


def test_repetitions_at_one_depth_are_one_depth() -> None:
    (text,) = sentences(
        [0.07 * GB] * 3, [0.060, 0.061, 0.099], ENGLISH, streamed_bytes=1.19 * GB, bandwidth_bytes_s=35 * GB
    )
    assert text.startswith("61 ms a token")


def test_words_for_several_depths() -> None:
    kv_bytes = np.array([0.01, 0.2, 0.4, 0.8]) * GB
    noise = np.array([1, -1, -1, 1]) * 1e-4
    first, slope, intercept = sentences(
        kv_bytes, 0.040 + kv_bytes / (20 * GB) + noise, ENGLISH, streamed_bytes=1.05 * GB, bandwidth_bytes_s=35 * GB
    )
    assert first.startswith("40.6 ms a token: 30 ms is reading weights")
    assert slope == "From 4 depths: the KV cache is read at 20 GB/s (95 %: 19.6 to 20.4)."
    assert "30 ms weights, 9.98 ms overhead (95 %: 9.51 to 10.4)" in intercept
    assert "if the weights are read at the measured 35 GB/s" in intercept


def test_two_depths_have_no_interval() -> None:
    _, slope, _ = sentences([0, GB], [0.04, 0.09], ENGLISH, streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert slope == "From 2 depths: the KV cache is read at 20 GB/s (two places give no interval)."


@pytest.mark.parametrize("times", [[0.040, 0.039, 0.038], [0.040, 0.048, 0.041]])
def test_no_slope_is_claimed_where_none_can_be_told(times: list[float]) -> None:
    _, text = sentences([0, 0.1 * GB, 0.2 * GB], times, ENGLISH, streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert text.startswith("No slope can be told from 3 depths")
    assert "the KV cache is read at" not in text.split(".")[0]


def test_two_depths_of_which_the_deeper_is_faster() -> None:
    _, text = sentences([0, GB], [0.04, 0.03], ENGLISH, streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert text == "No slope can be told from 2 depths: a deeper context is not slower."


def test_a_step_faster_than_the_measured_bandwidth_is_not_taken_apart() -> None:
    (text,) = sentences([0], [0.061], ENGLISH, streamed_bytes=2.47 * GB, bandwidth_bytes_s=35 * GB)
    assert "takes 70.6 ms" in text
    assert "cannot be taken apart" in text
    *_, intercept = sentences([0, GB], [0.061, 0.09], ENGLISH, streamed_bytes=2.47 * GB, bandwidth_bytes_s=35 * GB)
    assert "less than the 70.6 ms of the weights" in intercept
    assert "overhead" not in intercept


def test_a_cache_read_faster_than_the_memory_is_pointed_out() -> None:
    _, slope, _ = sentences([0, GB], [0.04, 0.05], ENGLISH, streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert "100 GB/s" in slope
    assert "more than the 35 GB/s measured" in slope


def test_without_a_measured_bandwidth_nothing_is_split() -> None:
    first, slope, intercept = sentences([0, GB], [0.04, 0.09], ENGLISH, streamed_bytes=GB)
    assert "25 GB/s if nothing else takes time" in first
    assert "20 GB/s" in slope
    assert intercept.endswith("weights and overhead together, which depths cannot tell apart.")


def test_an_intercept_below_zero_is_no_time() -> None:
    *_, intercept = sentences([GB, 2 * GB], [0.04, 0.09], ENGLISH, streamed_bytes=GB, bandwidth_bytes_s=35 * GB)
    assert "leaves no time for the weights" in intercept


def test_words_for_sizes() -> None:
    streamed = np.array([1, 2, 4, 8]) * GB
    exact = 0.004 + streamed / (30 * GB)
    noise = np.array([1, -1, -1, 1]) * 1e-5
    text = size_sentence(fit_sizes(streamed, exact + noise), ENGLISH)
    assert text.startswith("From 4 model sizes: weights are read at 30 GB/s (95 %: 30 to 30), and 4 ms overhead (95 %:")
    assert "if it is the same for every size" in text
    scattered = size_sentence(fit_sizes(streamed, exact + 500 * noise), ENGLISH)
    assert "cannot be told from none (at most" in scattered
    assert "do not tell" in size_sentence(fit_sizes(streamed, [0.1, 0.2, 0.1, 0.2]), ENGLISH)


def test_words_in_japanese() -> None:
    (text,) = sentences([0.07 * GB], [0.061], JAPANESE, streamed_bytes=1.19 * GB, bandwidth_bytes_s=35 * GB)
    assert text.startswith("1 トークン 61 ms のうち、このメモリの実測帯域幅 (35 GB/s) での重みの読み出しが 34 ms、")
    _, slope, intercept = sentences(
        [0, GB], [0.04, 0.09], JAPANESE, streamed_bytes=1.05 * GB, bandwidth_bytes_s=35 * GB
    )
    assert slope.startswith("2 通りの深さから: KV キャッシュは 20 GB/s (")
    assert "重み 30 ms、オーバーヘッド 10 ms です。" in intercept


NOISE = np.array([1, -1, -1, 1]) * 1e-4
DEPTHS = np.array([0, 0.2, 0.4, 0.8]) * GB


@pytest.mark.parametrize("bandwidth_bytes_s", [None, 35 * GB, 350 * GB])
@pytest.mark.parametrize(
    ("kv_bytes", "times"),
    [
        ([0], [0.061]),
        ([0, GB], [0.04, 0.09]),
        ([0, GB], [0.04, 0.05]),
        ([0, GB], [0.04, 0.03]),
        ([GB, 2 * GB], [0.04, 0.09]),
        (DEPTHS, 0.04 + DEPTHS / (20 * GB) + NOISE),
        (DEPTHS, 0.03 + DEPTHS / (20 * GB) + NOISE),
        (DEPTHS, 0.04 + DEPTHS / (200 * GB) + 10 * NOISE),
    ],
)
def test_japanese_says_the_same_numbers_and_no_english(
    kv_bytes: Any, times: Any, bandwidth_bytes_s: float | None
) -> None:
    told = [
        sentences(kv_bytes, times, language, streamed_bytes=1.05 * GB, bandwidth_bytes_s=bandwidth_bytes_s)
        for language in (ENGLISH, JAPANESE)
    ]
    for english, japanese in zip(*told, strict=True):
        _same_numbers(english, japanese)


@pytest.mark.parametrize("scatter", [0.1, 30, 1000])
def test_japanese_says_the_same_of_sizes(scatter: float) -> None:
    streamed = np.array([1, 2, 4, 8]) * GB
    line = fit_sizes(streamed, 0.004 + streamed / (30 * GB) + scatter * np.abs(NOISE) * [1, 0, 0, 1])
    _same_numbers(size_sentence(line, ENGLISH), size_sentence(line, JAPANESE))


def _same_numbers(english: str, japanese: str) -> None:
    """English writes "a token" and "two places" where Japanese has digits."""
    english = english.replace("a token", "1 token").replace("two places", "2 places")
    numbers = [Counter(re.findall(r"-?\d+(?:\.\d+)?", text)) for text in (english, japanese)]
    assert numbers[0] == numbers[1]
    assert re.search(r"[\u3040-\u30ff]", japanese)
    assert not re.search("[A-Za-z]{3}", japanese)
