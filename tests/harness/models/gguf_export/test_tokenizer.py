"""The tokenizer that llama.cpp reads from an exported file gives the ids that transformers gives."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import gguf
import llama_cpp
import pytest
import sentencepiece
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


@pytest.mark.parametrize("ids", [[], "2", [None], -1, 320, 2.0, {}])
def test_an_end_that_is_no_token_is_left_out(ids: object, tmp_path: Path) -> None:
    directory = model_directory(tmp_path, 320)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"eos_token_id": ids}))
    export(directory, tmp_path / "model.gguf", "f16")
    assert metadata(tmp_path / "model.gguf", "tokenizer.ggml.bos_token_id") == 1
    assert metadata(tmp_path / "model.gguf", "tokenizer.ggml.eos_token_id") is None


@pytest.mark.parametrize("token", ["\ud83d", 5, None])
def test_tokens_that_are_no_text_are_replaced(token: object, tmp_path: Path) -> None:
    hf = trained(BYTES(add_prefix_space=False))
    directory = model_directory(tmp_path, hf.get_vocab_size())
    document = json.loads(hf.to_str())
    document["added_tokens"][0]["content"] = token
    (directory / "tokenizer.json").write_text(json.dumps(document))
    export(directory, tmp_path / "model.gguf", "f16")
    assert "stand-in" in str(metadata(tmp_path / "model.gguf", "general.description"))


def trained_sentencepiece(to: Path, *, prefix: bool) -> sentencepiece.SentencePieceProcessor:
    """A BPE of SentencePiece's own, trained on this very file, with the settings of Llama 2 or Gemma."""
    sentencepiece.SentencePieceTrainer.train(
        input=__file__,
        model_prefix=str(to / "tokenizer"),
        model_type="bpe",
        vocab_size=700,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(to / "tokenizer.model"))


def as_tokenizer_json(model: sentencepiece.SentencePieceProcessor, *, prefix: bool) -> dict[str, Any]:
    """As the published files of Llama 2 or Gemma have it: pairs in the order of the pieces that they make."""
    pieces = [model.id_to_piece(id_) for id_ in range(model.get_piece_size())]
    vocab = {piece: id_ for id_, piece in enumerate(pieces)}
    made = [piece for id_, piece in enumerate(pieces) if not (model.is_byte(id_) or model.is_control(id_))]
    pairs = [(piece[:cut], piece[cut:]) for piece in made for cut in range(1, len(piece))]
    spaces = tokenizers.normalizers.Replace(" ", "▁")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab,
            [pair for pair in pairs if pair[0] in vocab and pair[1] in vocab],
            unk_token="<unk>",  # noqa: S106
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    normalizers = [tokenizers.normalizers.Prepend("▁"), spaces]
    tokenizer.normalizer = tokenizers.normalizers.Sequence(normalizers) if prefix else spaces
    if not prefix:
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return json.loads(tokenizer.to_str())


@pytest.mark.parametrize("prefix", [True, False])
def test_a_bpe_of_sentencepiece_gives_sentencepieces_ids(prefix: bool, tmp_path: Path) -> None:
    model = trained_sentencepiece(tmp_path, prefix=prefix)
    directory = model_directory(tmp_path / "hf", model.get_piece_size() + 8)
    (directory / "tokenizer.json").write_text(json.dumps(as_tokenizer_json(model, prefix=prefix)))
    export(directory, tmp_path / "model.gguf", "f16")
    assert metadata(tmp_path / "model.gguf", "tokenizer.ggml.model") == "llama"
    assert metadata(tmp_path / "model.gguf", "general.description") is None
    llama = opened(tmp_path / "model.gguf")
    for text in (*TEXTS, "  two  spaces", "\ttab\n\n"):
        assert llama.tokenize(text.encode(), add_bos=False) == model.encode(text)
        assert llama.detokenize(model.encode(text)).decode().removeprefix(" " if prefix else "") == text
    assert (llama.token_bos(), llama.token_eos()) == (1, 2)


@pytest.mark.parametrize("change", ["a pair lacks", "pairs in another order", "another normalizer", "no bytes"])
def test_a_bpe_that_llama_cpp_would_merge_otherwise_is_replaced(change: str, tmp_path: Path) -> None:
    model = trained_sentencepiece(tmp_path, prefix=True)
    document = as_tokenizer_json(model, prefix=True)
    merges = document["model"]["merges"]
    pieces = ["".join(pair) for pair in merges]
    one_of_several = next(i for i, piece in enumerate(pieces) if pieces.count(piece) > 1)
    if change == "a pair lacks":
        del merges[one_of_several]
    elif change == "pairs in another order":
        merges.append(merges.pop(one_of_several))
    elif change == "another normalizer":
        document["normalizer"]["normalizers"].append({"type": "Lowercase"})
    else:
        document["model"]["byte_fallback"] = False
    directory = model_directory(tmp_path / "hf", model.get_piece_size())
    (directory / "tokenizer.json").write_text(json.dumps(document))
    export(directory, tmp_path / "model.gguf", "f16")
    assert "stand-in" in str(metadata(tmp_path / "model.gguf", "general.description"))
