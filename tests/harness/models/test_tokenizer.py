"""The synthetic tokenizer, as transformers reads it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from harness.models import tokenizer
from harness.models.presets import PRESETS


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer.write_hf(directory, {"vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2})
    return AutoTokenizer.from_pretrained(directory)


@given(st.text())
def test_any_text_survives_the_way_there_and_back(small: PreTrainedTokenizerBase, text: str) -> None:
    assert small.decode(small(text)["input_ids"]) == text


def test_merges_shorten_english(small: PreTrainedTokenizerBase) -> None:
    text = "the ring in the other hand"
    assert len(small(text)["input_ids"]) < len(text) * 0.6


@pytest.mark.parametrize("name", ["gpt2", "llama-2-7b", "llama-3.1-8b", "qwen3-8b", "mistral-7b"])
def test_every_preset_has_its_special_tokens(tmp_path: Path, name: str) -> None:
    config = PRESETS[name]
    tokenizer.write_hf(tmp_path, config)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded) == config["vocab_size"]
    assert (loaded.bos_token_id, loaded.eos_token_id) == (config["bos_token_id"], config["eos_token_id"])
    assert loaded.decode([config["bos_token_id"], *loaded("hand")["input_ids"]], skip_special_tokens=True) == "hand"


@given(st.integers(tokenizer.MIN_VOCAB_SIZE, 2000))
def test_tokens_are_distinct_and_every_merge_makes_one(vocab_size: int) -> None:
    tokens, merges = tokenizer.vocabulary(vocab_size)
    assert len(set(tokens)) == len(tokens) == vocab_size
    assert {merge.replace(" ", "") for merge in merges} <= set(tokens)


def test_too_small_a_vocabulary_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least"):
        tokenizer.vocabulary(tokenizer.MIN_VOCAB_SIZE - 1)


def test_a_special_id_among_the_bytes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belongs to the text token"):
        tokenizer.write_hf(tmp_path, {"vocab_size": 512, "bos_token_id": 40, "eos_token_id": 2})
