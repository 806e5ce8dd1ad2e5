"""Texts of exactly so many tokens, for tokenizers of several kinds."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backends.openai.errors import ServerError
from harness.serving.prompts import IdPrompts, TextPrompts

TOKENIZERS = {
    "bytes": re.compile(r"(?s)."),
    "words": re.compile(r"\S+"),
    "words with their space": re.compile(r" ?\w+|\s+|[^\w\s]"),
    "pieces that merge across words": re.compile(r"(?s)[aeiou ]+|[^aeiou ]{1,2}"),
    "up to three letters": re.compile(r"(?s) ?[a-z]{1,3}|\s+|."),
}


class _Count:
    def __init__(self, pieces: re.Pattern[str], beside: int, is_pure: bool) -> None:
        self.pieces, self.beside, self.is_pure, self.asked = pieces, beside, is_pure, 0

    async def __call__(self, text: str) -> int:
        self.asked += 1
        return self.beside + len(self.pieces.findall(text))


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@example(n_tokens=346, beside=8, is_pure=False, n_first=16, seed=356)  # its first word alone was too long
@given(st.integers(24, 400), st.integers(0, 9), st.booleans(), st.sampled_from([0, 16, 64]), st.integers(0, 2**16))
@settings(max_examples=25)
def test_every_prompt_is_exact_and_begins_anew(tokenizer, n_tokens, beside, is_pure, n_first, seed):
    count = _Count(TOKENIZERS[tokenizer], beside, is_pure)
    n_first = n_first if n_first < n_tokens - 8 else 0
    prompts = TextPrompts(count, seed, "salt")
    rounds = [asyncio.run(prompts.make(n_first, n_tokens, 3, number)) for number in range(2)]
    whole = [prompt for made in rounds for prompt in made.whole]
    assert [asyncio.run(count(prompt)) for prompt in whole] == [n_tokens] * 6
    for made in rounds:
        assert [asyncio.run(count(prompt)) for prompt in made.first] == [n_first] * (3 if n_first else 0)
        assert all(one.startswith(first) for one, first in zip(made.whole, made.first, strict=False))
    # One-token heads of a short prompt are 80 at most; all others have room for six different ones.
    assert len(set(whole)) >= 5
    assert count.asked < 1500


@given(st.integers(0, 2**63), st.integers(0, 1000))
def test_ids_of_two_calls_or_rounds_share_no_beginning(seed, number):
    def first(salt: str, at: int) -> list[int]:
        (prompt,) = asyncio.run(IdPrompts(32000, seed, salt).make(0, 8, 1, at)).whole
        return prompt

    assert first("a1", number) == first("a1", number)
    assert first("a1", number) != first("a2", number)
    assert first("a1", number) != first("a1", number + 1)


def test_what_has_no_exact_length_is_an_error_in_time():
    count = _Count(re.compile(r"(?s)."), 0, is_pure=True)

    async def even(text: str) -> int:
        return 2 * await count(text)

    even.is_pure = True
    with pytest.raises(ServerError, match="exactly 101 by"):
        asyncio.run(TextPrompts(even, 1, "salt").make(0, 101, 1, 0))
    assert count.asked < 200
