"""The tokenizer section of a GGUF file: the model's own where llama.cpp has its like, else a stand-in.

A run feeds token ids, so its speed does not depend on the tokenizer; servers need one that makes ids of text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.models.gguf_export import sentencepiece
from harness.models.gguf_export.tokenizer_json import NORMAL, Section, merged_pairs, padded_tokens
from harness.models.tokenizer import MIN_VOCAB_SIZE, vocabulary

if TYPE_CHECKING:
    from gguf import GGUFWriter

    from harness.models.gguf_export.config import Config
    from harness.models.gguf_export.tokenizer_json import Document

# llama.cpp knows ways of splitting text into words by name, tokenizer.json by regular expression.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PRE_TOKENIZERS = {_WORDS % r"\p{N}{1,3}": "llama-bpe", _WORDS % r"\p{N}": "qwen2"}

STAND_IN = "The tokenizer is a stand-in: this file is for runs that feed token ids."
"""`general.description` of a file whose tokenizer is not its model's."""


def write_tokenizer(writer: GGUFWriter, document: Document | None, config: Config) -> list[str]:
    """Add tokens, merges or scores, and special ids for a vocabulary of `config["vocab_size"]`.

    A `tokenizer.json` with a byte-level BPE and GPT-2's, Llama 3's or Qwen 2's words, or with a BPE as SentencePiece
    has it, is written as it is. Any other is replaced by the tokenizer of the synthetic models, and
    `general.description` says so; a vocabulary too small even for that gets none.

    Args:
        writer: of the file.
        document: the `tokenizer.json`; None where there is none.
        config: of the model.

    Returns:
        The tokens.
    """
    vocab_size = int(config["vocab_size"])
    section = _own_section(document, vocab_size)
    if section is None:
        writer.add_description(STAND_IN)
        if vocab_size < MIN_VOCAB_SIZE:
            writer.add_tokenizer_model("no_vocab")
            return []
        tokens, merges = vocabulary(vocab_size)
        section = Section("gpt2", "gpt-2", tokens, [NORMAL] * vocab_size, merges)
    _write_section(writer, section)
    for name, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        ids = config.get(name)
        first = next(iter(ids), None) if isinstance(ids, list) else ids
        if isinstance(first, int) and 0 <= first < vocab_size:
            add(int(first))
    return section.tokens


def _write_section(writer: GGUFWriter, section: Section) -> None:
    writer.add_tokenizer_model(section.model)
    writer.add_tokenizer_pre(section.pre)
    writer.add_token_list(section.tokens)
    writer.add_token_types(section.types)
    if section.merges is not None:
        writer.add_token_merges(section.merges)
    if section.scores is not None:
        writer.add_token_scores(section.scores)
    if section.add_space_prefix is not None:
        writer.add_add_space_prefix(section.add_space_prefix)


def _own_section(document: Document | None, vocab_size: int) -> Section | None:
    """None where there is no `tokenizer.json`, or one that llama.cpp has no like of."""
    if document is None:
        return None
    try:
        return _byte_level_bpe(document, vocab_size) or sentencepiece.section(document, vocab_size)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _byte_level_bpe(document: Document, vocab_size: int) -> Section | None:
    pre = _pre_tokenizer(document["pre_tokenizer"] or {})
    padded = padded_tokens(document, vocab_size)
    if pre is None or padded is None:
        return None
    merges = [" ".join(pair) for pair in merged_pairs(document)]
    return Section("gpt2", pre, *padded, merges) if merges else None  # llama.cpp refuses an empty list of them


def _pre_tokenizer(node: dict[str, Any]) -> str | None:
    """llama.cpp's name for a `pre_tokenizer` that ends in bytes, or None."""
    if node.get("type") == "ByteLevel" and node.get("use_regex", True) and not node["add_prefix_space"]:
        return "gpt-2"
    if [step["type"] for step in node.get("pretokenizers", ())] != ["Split", "ByteLevel"]:
        return None
    return _PRE_TOKENIZERS.get(node["pretokenizers"][0]["pattern"].get("Regex"))
