"""The tokenizer section of a GGUF file: the model's own where llama.cpp has its like, else a stand-in.

A run feeds token ids, so its speed does not depend on the tokenizer; servers need one that makes ids of text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.models.tokenizer import MIN_VOCAB_SIZE, vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from gguf import GGUFWriter

    from harness.models.gguf_families import Config

# llama.cpp knows ways of splitting text into words by name, tokenizer.json by regular expression.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PRE_TOKENIZERS = {_WORDS % r"\p{N}{1,3}": "llama-bpe", _WORDS % r"\p{N}": "qwen2"}

# gguf.TokenType, without importing gguf.
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5


def write_tokenizer(writer: GGUFWriter, hf_directory: Path, config: Config) -> None:
    """Add tokens, merges and special ids for a vocabulary of `config["vocab_size"]`.

    A byte-level BPE `tokenizer.json` with GPT-2's, Llama 3's or Qwen 2's words is written as it is. Any other
    is replaced by the tokenizer of the synthetic models, and `general.description` says so; a vocabulary too
    small even for that gets none.
    """
    vocab_size = int(config["vocab_size"])
    section = _byte_level_bpe(hf_directory / "tokenizer.json", vocab_size)
    if section is None:
        writer.add_description("The tokenizer is a stand-in: this file is for runs that feed token ids.")
        if vocab_size < MIN_VOCAB_SIZE:
            writer.add_tokenizer_model("no_vocab")
            return
        tokens, merges = vocabulary(vocab_size)
        section = "gpt-2", tokens, [_NORMAL] * vocab_size, merges
    pre, tokens, types, merges = section
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    for name, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        ids = config.get(name)
        first = ids[0] if isinstance(ids, list) else ids
        if first is not None and 0 <= first < vocab_size:
            add(first)


def _byte_level_bpe(path: Path, vocab_size: int) -> tuple[str, list[str], list[int], list[str]] | None:
    """`(pre-tokenizer, tokens, types, merges)`, padded to the vocabulary, or None."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        pre = _pre_tokenizer(document["pre_tokenizer"])
        model, added = document["model"], document["added_tokens"]
        words = {id_: (token, _NORMAL) for token, id_ in model["vocab"].items()}
        for token in added:
            words[token["id"]] = token["content"], _CONTROL if token["special"] else _USER_DEFINED
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # no tokenizer.json, or one of another kind
    padded = [words.get(id_, (f"[PAD{id_}]", _UNUSED)) for id_ in range(vocab_size)]
    tokens = [token for token, _ in padded]
    # llama.cpp aborts on a repeated token, and refuses an empty list of merges.
    if pre is None or not merges or max(words, default=0) >= vocab_size or len(set(tokens)) < vocab_size:
        return None
    return pre, tokens, [type_ for _, type_ in padded], merges


def _pre_tokenizer(node: dict[str, Any]) -> str | None:
    """llama.cpp's name for a `pre_tokenizer` that ends in bytes, or None."""
    if node["type"] == "ByteLevel" and node.get("use_regex", True) and not node["add_prefix_space"]:
        return "gpt-2"
    if [step["type"] for step in node.get("pretokenizers", ())] != ["Split", "ByteLevel"]:
        return None
    return _PRE_TOKENIZERS.get(node["pretokenizers"][0]["pattern"].get("Regex"))
