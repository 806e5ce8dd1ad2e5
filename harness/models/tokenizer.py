"""A small byte-level BPE tokenizer, padded to any vocabulary size, for synthetic models.

Servers and benchmark tools refuse a model without a tokenizer. This one turns any text into ids and back;
it knows no language. Its layout does not depend on the model: ids 0 to 2 unused, then the 256 bytes, then a
few merged pairs, and unused ids up to the vocabulary's size. The ids that a model's configuration names as
`bos_token_id` and `eos_token_id` are unused ones, and are marked as special.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Low ids that models use for special tokens: Llama 2 has <unk>, <s> and </s> there.
_RESERVED = 3
# Frequent pairs of English, in the order in which they are merged; "Ġ" is the byte-level spelling of a space.
_MERGES = [
    *(
        "Ġ t",
        "h e",
        "Ġ a",
        "i n",
        "r e",
        "o n",
        "Ġt he",
        "e r",
        "Ġ s",
        "a t",
        "Ġ w",
        "Ġ o",
        "e n",
        "Ġ c",
        "i t",
    ),
    *(
        "i s",
        "a n",
        "o r",
        "e s",
        "Ġ b",
        "e d",
        "Ġ f",
        "in g",
        "Ġ p",
        "o u",
        "Ġa n",
        "a l",
        "a r",
        "Ġt o",
        "Ġ m",
    ),
    *("Ġo f", "Ġ in", "Ġ d", "Ġ h", "Ġan d", "i c", "a s", "l e", "Ġt h", "i on"),
]

MIN_VOCAB_SIZE = _RESERVED + 256 + len(_MERGES)


def vocabulary(vocab_size: int) -> tuple[list[str], list[str]]:
    """The tokens by id, and the merges in order of priority, in GPT-2's byte-level spelling.

    Returns:
        `(tokens, merges)`: `vocab_size` distinct tokens, and merges such as `"Ġ t"`.

    Raises:
        ValueError: the vocabulary is too small for the bytes and merges.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise ValueError(f"the tokenizer needs a vocabulary of at least {MIN_VOCAB_SIZE}, not {vocab_size}")
    words = _byte_alphabet() + [merge.replace(" ", "") for merge in _MERGES]
    tokens = [f"<unused_{i}>" for i in range(vocab_size)]
    tokens[_RESERVED : _RESERVED + len(words)] = words
    return tokens, _MERGES.copy()


def _byte_alphabet() -> list[str]:
    """GPT-2's printable character for each byte, in byte order."""
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    substitutes = iter(range(256, 512))
    return [chr(byte if byte in printable else next(substitutes)) for byte in range(256)]


def document(config: Mapping[str, Any]) -> dict[str, Any]:
    """The `tokenizer.json` for a Hugging Face configuration.

    Raises:
        ValueError: the vocabulary is too small, or a special id belongs to a byte or a merge.
    """
    tokens, merges = vocabulary(config["vocab_size"])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": tokens.index(token), "content": token, **flags}
            for token in sorted(set(_special_tokens(config, tokens).values()))
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
        },
    }


def write_hf(directory: Path, config: Mapping[str, Any]) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` for a Hugging Face configuration.

    Raises:
        ValueError: as `document`.
    """
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **_special_tokens(config, vocabulary(config["vocab_size"])[0]),
    }
    _write_json(directory / "tokenizer.json", document(config))
    _write_json(directory / "tokenizer_config.json", settings)


def _special_tokens(config: Mapping[str, Any], tokens: list[str]) -> dict[str, str]:
    special = {name: tokens[config[f"{name}_id"]] for name in ("bos_token", "eos_token")}
    for token in special.values():
        if not token.startswith("<unused_"):
            raise ValueError(f"the special token id {tokens.index(token)} belongs to the text token {token!r}")
    return special


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
