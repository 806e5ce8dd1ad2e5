"""A model's shape from a Hugging Face `config.json`."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.roofline.families import FAMILIES, family_of
from harness.roofline.keys import Noted, flag, word

if TYPE_CHECKING:
    from harness.roofline.architecture import Architecture

# A key with such a word may change the bytes, unless it is one of those listed below.
_SIZE = re.compile(
    r"\b(bias|blocks?|conv|cross|d|depth|dim|expand|experts?|ffn?|gated|heads?|hidden|inner|interval|kernel|latent|"
    r"layers?|mamba|memory|mlp|n|num|pattern|qk|rank|shared?|sinks?|size|ssm|states?|width|window)\b"
)
_SAID_EITHER_WAY = re.compile(r"\b(gated mlp|gated ffn|glu|tied?)\b")  # false says something too
_HARMLESS = frozenset(
    [
        "encoder_no_repeat_ngram_size",
        "hidden_dropout",
        "hidden_dropout_prob",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "mtp_num_hidden_layers",
        "n_ctx",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_labels",
        "num_nextn_predict_layers",
        "num_return_sequences",
        "output_hidden_states",
        "scale_attn_by_inverse_layer_idx",
        "tie_encoder_decoder",
    ]
)


def from_hf_config(config: Mapping[str, Any]) -> Architecture:
    """Read a Hugging Face `config.json`; of a model that sees or hears, the part that reads and writes text.

    Raises:
        ValueError: the family is unknown, a key is missing or is no number, two contradict each other, or there is one
            that may change the bytes and that the family does not know; the message names it.
    """
    text = _text_config(config)
    family = family_of(text["model_type"])
    noted = Noted(ChainMap(text, dict(family.defaults)))
    architecture = family.build(noted)
    for key in text.keys() - noted.asked - family.idle:
        if _may_change_bytes(key, text[key]):
            raise ValueError(f"{key} is {text[key]!r}, which {text['model_type']} is not known to have")
    return architecture


def _may_change_bytes(key: str, value: object) -> bool:
    """Whether a key that nobody has read speaks of sizes or structure, and says something."""
    if key.startswith("_") or key in _HARMLESS or value is None or isinstance(value, str):
        return False
    words = key.replace("_", " ")
    return _SAID_EITHER_WAY.search(words) is not None or (bool(value) and _SIZE.search(words) is not None)


def _text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's keys; the whole model's `tie_word_embeddings` goes before its own, as in transformers."""
    model_type = word(config, "model_type")
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return {**config, "model_type": _text_type(model_type)}
    text = {**inner, "model_type": _text_type(str(inner.get("model_type") or model_type))}
    if config.get("tie_word_embeddings") is not None:
        text["tie_word_embeddings"] = flag(config, "tie_word_embeddings")
    return text


def _text_type(model_type: str) -> str:
    """`gemma3` is the model that sees, `gemma3_text` the part of it that writes."""
    return f"{model_type}_text" if f"{model_type}_text" in FAMILIES else model_type
