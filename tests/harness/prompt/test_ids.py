"""One text and one tokenizer give the same ids, whoever reads the tokenizer."""

import json
from pathlib import Path

import gguf
import pytest
import tokenizers
import transformers

from harness.errors import UserError
from harness.models.gguf_export import export
from harness.models.source import ModelSource, resolve
from harness.prompt.ids import prompt_ids, repeated
from harness.prompt.text import PromptText
from harness.workload import Case

TEXT = "the rest of it, in 1234 ways!\n\n  naïve café → 数字 🙂 <|end|> and the end"
CASES = (Case(0, 8, 4), Case(0, 8, 4, batch=3))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with a real BPE tokenizer, trained on this very file, and a special token."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([__file__], trainer)
    tokenizer.add_special_tokens(["<|end|>"])
    # What a tokenizer is told to do with a chat must not touch the text.
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("<|end|> $A", special_tokens=[("<|end|>", 320)])
    tokenizer.enable_truncation(4)
    path = tmp_path_factory.mktemp("ids") / "model"
    config = transformers.LlamaConfig(
        vocab_size=321, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        bos_token_id=320, eos_token_id=320,
    )  # fmt: skip
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def gguf_file(directory: Path) -> Path:
    path = directory.with_suffix(".gguf")
    export(directory, path, "f16")
    return path


def _ids(model: Path, text: str = TEXT, cases: tuple[Case, ...] = CASES) -> list[int]:
    source = resolve(str(model))
    return [int(each) for each in prompt_ids(PromptText("text.txt", "0" * 64, text), [source], cases)[source]]


def test_both_files_of_a_model_give_the_ids_of_the_words_alone(directory: Path, gguf_file: Path) -> None:
    ids = _ids(directory)
    assert ids == _ids(gguf_file)
    end = 320
    assert end not in ids  # neither put before the text, nor read in it
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizers.decoders.ByteLevel().decode([tokenizer.id_to_token(each) for each in ids]) == TEXT
    assert len(ids) < len(TEXT.encode())  # it merges, as it was trained to


def test_a_short_text_is_said_to_be_repeated(directory: Path) -> None:
    source = resolve(str(directory))
    ids = prompt_ids(PromptText("text.txt", "0" * 64, TEXT), [source], CASES)
    n = len(ids[source])
    assert repeated(ids, (Case(0, n - 4, 4),)) == []
    assert repeated(ids, (Case(1, n - 4, 4),)) == [
        f"the text has {n} tokens for model, and a case reads {n + 1}: it is repeated"
    ]


def test_what_cannot_be_tokenised_is_refused_in_one_line(directory: Path) -> None:
    with pytest.raises(UserError, match="1 token for model; at least 2 are needed"):
        _ids(directory, "x")
    n = len(_ids(directory))
    assert len(_ids(directory, cases=(Case(0, 8, 4, batch=n),))) == n
    with pytest.raises(UserError, match=rf"{n} tokens for model, too few for {n + 1} sequences \(-B\)"):
        _ids(directory, cases=(CASES[0], Case(0, 8, 4, batch=n + 1)))
    with pytest.raises(UserError, match="the preset gpt2-mini has no tokenizer of its own"):
        _ids(Path("gpt2-mini"))


def _with_tokenizer(directory: Path, tmp_path: Path, content: str | None) -> Path:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config.json", "model.safetensors"):
        (other / name).symlink_to(directory / name)
    if content is not None:
        (other / "tokenizer.json").write_text(content)
    return other


def test_a_tokenizer_that_is_missing_broken_or_another_models(directory: Path, tmp_path: Path) -> None:
    model = _with_tokenizer(directory, tmp_path, None)
    with pytest.raises(UserError, match=r"no tokenizer\.json, which --prompt-file needs"):
        _ids(model)
    (model / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="not a readable tokenizer"):
        _ids(model)
    larger = json.loads((directory / "tokenizer.json").read_text())
    larger["model"]["vocab"]["!"], larger["model"]["vocab"]["\u0120"] = 5000, 5001
    (model / "tokenizer.json").write_text(json.dumps(larger))
    with pytest.raises(UserError, match="gives token 5001, and the model has only 321: it is another model's"):
        _ids(model, "! !")


def _gguf_source(path: Path, directory: Path) -> ModelSource:
    """Of a file that has no tensors: none are asked for here."""
    architecture = resolve(str(directory)).architecture
    return ModelSource("tiny", "gguf", path, architecture, "trained")


@pytest.mark.parametrize("stand_in", [False, True])
def test_a_gguf_without_a_tokenizer_of_its_own(directory: Path, tmp_path: Path, stand_in: bool) -> None:
    """A Unigram tokenizer is replaced in the export; a vocabulary too small for that gets none."""
    small = tmp_path / "small"
    config = transformers.LlamaConfig(
        vocab_size=400 if stand_in else 64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(small)
    path = tmp_path / "small.gguf"
    export(small, path, "f16")
    with pytest.raises(UserError, match="its tokenizer is a stand-in for the model's own"):
        _ids(path)
    if stand_in:
        return
    bare = tmp_path / "bare.gguf"
    writer = gguf.GGUFWriter(bare, "llama")
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(64)
    for add in (writer.add_context_length, writer.add_embedding_length, writer.add_block_count):
        add(32)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_feed_forward_length(32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    source = _gguf_source(bare, directory)
    with pytest.raises(UserError, match=r"bare\.gguf has no tokenizer"):
        prompt_ids(PromptText("text.txt", "0" * 64, TEXT), [source], CASES)
