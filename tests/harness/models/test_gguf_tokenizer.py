"""The tokenizer that llama.cpp reads from an exported file gives the ids that transformers gives."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING

import gguf
import llama_cpp
import pytest
import tokenizers
import transformers
from transformers.convert_slow_tokenizer import TikTokenConverter

from harness.models import tokenizer as synthetic
from harness.models.gguf_export import export

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("only_the_host")

TEXTS = ("the rest of it, in 1234 ways!", "Is this\n\n  what they'll   mean?", "naïve café → 数字 🙂", "x")


def model_directory(to: Path, vocab_size: int, bos: int | None = 1, eos: int | None = 2) -> Path:
    config = transformers.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        bos_token_id=bos,
        eos_token_id=eos,
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(to)
    return to


def trained(pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    """A real BPE tokenizer, trained on this very file, with a special token at the end of its vocabulary."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([__file__], trainer)
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def opened(path: Path) -> llama_cpp.Llama:
    return llama_cpp.Llama(str(path), n_ctx=64, n_threads=1, n_gpu_layers=0, verbose=False)


def metadata(path: Path, key: str) -> object:
    field = gguf.GGUFReader(path).get_field(key)
    return None if field is None else field.contents()


def test_the_tokenizer_of_the_synthetic_models(tmp_path: Path) -> None:
    directory = model_directory(tmp_path, 500, bos=400, eos=401)
    synthetic.write_hf(directory, json.loads((directory / "config.json").read_text()))
    export(directory, tmp_path / "model.gguf", "f16")
    llama = opened(tmp_path / "model.gguf")
    hf = transformers.AutoTokenizer.from_pretrained(directory)
    for text in TEXTS:
        ids = llama.tokenize(text.encode(), add_bos=False)
        assert ids == hf.encode(text, add_special_tokens=False)
        assert llama.detokenize(ids).decode() == text
    assert (llama.token_bos(), llama.token_eos()) == (400, 401)
    assert metadata(tmp_path / "model.gguf", "general.description") is None
    # A server needs no more than this.
    completion = llama.create_completion("the rest", max_tokens=4, temperature=0)
    assert completion["usage"]["prompt_tokens"] > 0


BYTES = tokenizers.pre_tokenizers.ByteLevel
LLAMA3_WORDS = inspect.signature(TikTokenConverter.__init__).parameters["pattern"].default
QWEN2_WORDS = transformers.models.qwen2.tokenization_qwen2.PRETOKENIZE_REGEX


def split(words: str) -> tokenizers.pre_tokenizers.PreTokenizer:
    return tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(words), "isolated"),
            BYTES(add_prefix_space=False, use_regex=False),
        ]
    )


@pytest.mark.parametrize(
    ("pre_tokenizer", "name"),
    [
        (BYTES(add_prefix_space=False), "gpt-2"),
        (split(LLAMA3_WORDS), "llama-bpe"),
        (split(QWEN2_WORDS), "qwen2"),
    ],
)
def test_a_byte_level_bpe_is_written_as_it_is(
    pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer, name: str, tmp_path: Path
) -> None:
    hf = trained(pre_tokenizer)
    end = hf.token_to_id("<|end|>")
    directory = model_directory(tmp_path, end + 9, bos=end, eos=end)  # eight rows of padding
    hf.save(str(directory / "tokenizer.json"))
    export(directory, tmp_path / "model.gguf", "f16")
    assert metadata(tmp_path / "model.gguf", "tokenizer.ggml.pre") == name
    llama = opened(tmp_path / "model.gguf")
    for text in TEXTS:
        assert llama.tokenize(text.encode(), add_bos=False) == hf.encode(text).ids
    assert llama.tokenize(b"x<|end|>", add_bos=False, special=True)[-1] == end
    assert llama.token_eos() == end


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        tokenizers.pre_tokenizers.Metaspace(),
        BYTES(add_prefix_space=True),
        split(r"\p{L}+|\P{L}+"),
    ],
)
def test_another_tokenizer_is_replaced_and_the_file_says_so(
    pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer, tmp_path: Path
) -> None:
    hf = trained(pre_tokenizer)
    directory = model_directory(tmp_path, hf.get_vocab_size())
    hf.save(str(directory / "tokenizer.json"))
    export(directory, tmp_path / "model.gguf", "f16")
    assert "stand-in" in str(metadata(tmp_path / "model.gguf", "general.description"))
    llama = opened(tmp_path / "model.gguf")
    for text in TEXTS:
        assert llama.detokenize(llama.tokenize(text.encode(), add_bos=False)).decode() == text


def test_more_tokens_than_rows_are_replaced(tmp_path: Path) -> None:
    hf = trained(BYTES(add_prefix_space=False))
    directory = model_directory(tmp_path, hf.get_vocab_size() - 1)
    hf.save(str(directory / "tokenizer.json"))
    export(directory, tmp_path / "model.gguf", "f16")
    assert "stand-in" in str(metadata(tmp_path / "model.gguf", "general.description"))


@pytest.mark.parametrize("vocab_size", [65, 320])
def test_a_directory_without_tokenizer(vocab_size: int, tmp_path: Path) -> None:
    directory = model_directory(tmp_path, vocab_size)
    export(directory, tmp_path / "model.gguf", "f16")
    llama = opened(tmp_path / "model.gguf")
    assert llama.n_vocab() == vocab_size
    llama.eval([3, 5, 7])
    assert llama.n_tokens == 3
