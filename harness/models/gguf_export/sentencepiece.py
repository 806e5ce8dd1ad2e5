"""A BPE as SentencePiece has it: Llama 2's, Mistral's, Gemma's, Phi 3's.

llama.cpp joins the two neighbours whose piece has the best score; `tokenizer.json` has the pairs in order. Both do the
same where a piece's pairs are all there and follow one another, as transformers' conversion makes them.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from harness.models.gguf_export.tokenizer_json import (
    BYTE,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Section,
    merged_pairs,
    padded_tokens,
)

if TYPE_CHECKING:
    from harness.models.gguf_export.tokenizer_json import Document

_SPACE = "▁"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def section(document: Document, vocab_size: int) -> Section | None:
    """None for a tokenizer of another kind."""
    model = document["model"]
    if model["type"] != "BPE" or not model.get("byte_fallback"):
        return None
    add_space_prefix = _adds_space_prefix(document)
    added = {token["content"] for token in document["added_tokens"]}
    scores = _scores(merged_pairs(document), set(model["vocab"]), added)
    padded = padded_tokens(document, vocab_size)
    if add_space_prefix is None or scores is None or padded is None:
        return None
    tokens, types = padded
    for id_, token in enumerate(tokens):
        if token == model.get("unk_token"):
            types[id_] = UNKNOWN
        elif types[id_] == NORMAL and _BYTE.fullmatch(token):
            types[id_] = BYTE
        elif types[id_] == USER_DEFINED:  # which llama.cpp looks for in the text as it was written
            tokens[id_] = token.replace(_SPACE, " ")
    last = float(-len(scores))
    found = [scores.get(token, last) for token in tokens]
    return Section("llama", "default", tokens, types, scores=found, add_space_prefix=add_space_prefix)


def _adds_space_prefix(document: Document) -> bool | None:
    """Whether a space goes before a text; None where spaces become something else than `▁`, or text is changed too."""
    normal = [_essence(step) for step in _steps(document["normalizer"], "normalizers")]
    pre = [_essence(step) for step in _steps(document["pre_tokenizer"], "pretokenizers")]
    if normal == ["spaces"] and pre in ([], ["nothing"]):
        return False
    if normal == ["prefix", "spaces"] and not pre:
        return True
    if not normal and pre in (["prefixed words"], ["words"]):
        return pre == ["prefixed words"]
    return None


def _steps(node: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    return [] if node is None else node.get(inner, [node])


def _essence(step: dict[str, Any]) -> str:
    match step:
        case {"type": "Prepend", "prepend": "▁"}:
            return "prefix"
        case {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
            return "spaces"
        case {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}:
            return "nothing"  # after the spaces have been replaced
        case {"type": "Metaspace", "replacement": "▁", "split": False, "prepend_scheme": "never"}:
            return "words"
        case {"type": "Metaspace", "replacement": "▁", "split": False, "prepend_scheme": "first" | "always"}:
            return "prefixed words"
    return "another"


def _scores(pairs: list[tuple[str, str]], vocab: set[str], added: set[str]) -> dict[str, float] | None:
    """Of each piece that pairs make; None where pairs of one piece lack or are scattered.

    Args:
        pairs: in order.
        vocab: all pieces.
        added: those of them that are looked for in the text before any are joined.
    """
    scores: dict[str, float] = {}
    made: Counter[str] = Counter()
    last = None
    for left, right in pairs:
        piece = left + right
        if piece != last and piece in scores:
            return None
        scores.setdefault(piece, float(-len(scores)))
        made[piece] += 1
        last = piece
    for piece in vocab - added:
        halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        if made[piece] != sum(left in vocab and right in vocab for left, right in halves):
            return None
    return scores
