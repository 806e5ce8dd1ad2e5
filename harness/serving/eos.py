"""The tokens that end a text, by a model's own files: a server without `ignore_eos` may be told to ban them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.models.artifact_weights import gguf_header
from harness.models.hf_config import CONFIG
from harness.models.presets import PRESETS

if TYPE_CHECKING:
    from pathlib import Path

    from harness.models.source import ModelSource

_FILES = (CONFIG, "generation_config.json")


def eos_ids(source: ModelSource | None) -> tuple[int, ...]:
    """All that the files name; none where nothing is known."""
    if source is None:
        return ()
    if source.path is None:
        return _ids(PRESETS[source.name])
    if source.origin == "gguf":
        return _as_ids(gguf_header(source.path).metadata.get("tokenizer.ggml.eos_token_id"))
    folder = source.path if source.path.is_dir() else source.path.parent
    return tuple(dict.fromkeys(token for name in _FILES for token in _ids(_document(folder / name))))


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _ids(config: dict[str, Any]) -> tuple[int, ...]:
    text = config.get("text_config")
    return _as_ids(config.get("eos_token_id")) or (_as_ids(text.get("eos_token_id")) if isinstance(text, dict) else ())


def _as_ids(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(each for each in values if isinstance(each, int) and not isinstance(each, bool))
