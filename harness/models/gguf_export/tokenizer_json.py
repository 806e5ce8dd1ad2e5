"""A Hugging Face `tokenizer.json`, and what GGUF takes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# gguf.TokenType, without importing gguf.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

Document = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A tokenizer in GGUF's words.

    Attributes:
        model: llama.cpp's name of the algorithm.
        pre: its name of the way that text is split into words before.
        tokens: by id, all different.
        types: of each of them.
        merges: pairs that become one, in order; of "gpt2" alone.
        scores: of each token, the largest is made first; of "llama" alone.
        add_space_prefix: whether a space goes before a text; of "llama" alone.
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    merges: list[str] | None = None
    scores: list[float] | None = None
    add_space_prefix: bool | None = None


def read(path: Path) -> Document | None:
    """The document; None where there is none."""
    try:
        document: Document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def merged_pairs(document: Document) -> list[tuple[str, str]]:
    """Of a BPE, in order; older files write a pair as one word with a space in it."""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in document["model"]["merges"])
    return [(left, right) for left, right in pairs]


def padded_tokens(document: Document, vocab_size: int) -> tuple[list[str], list[int]] | None:
    """Tokens and their types, up to a vocabulary's size; None where they are more, or two are the same.

    Raises:
        ValueError, TypeError, KeyError: they are not as `tokenizer.json` has them.
    """
    words = {id_: (token, NORMAL) for token, id_ in document["model"]["vocab"].items()}
    for token in document["added_tokens"]:
        words[token["id"]] = token["content"], CONTROL if token["special"] else USER_DEFINED
    padded = [words.get(id_, (f"[PAD{id_}]", UNUSED)) for id_ in range(vocab_size)]
    tokens = [token for token, _ in padded]
    "".join(tokens).encode()  # as text; a half of a surrogate pair is none
    # llama.cpp aborts on a repeated token.
    if max(words, default=0) >= vocab_size or len(set(tokens)) < vocab_size:
        return None
    return tokens, [type_ for _, type_ in padded]
