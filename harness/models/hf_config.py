"""Reading a Hugging Face directory's `config.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


CONFIG = "config.json"
BESIDE_WEIGHTS = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""Names of what a model directory has beside its weights: configuration and tokenizer; no code."""


def config_path(model: Path) -> Path:
    """Where the configuration of a model directory is; a file is one itself."""
    return model / CONFIG if model.is_dir() else model


def read_config(model: Path) -> dict[str, Any]:
    """The configuration of a model directory, or a configuration's file.

    Raises:
        UserError: there is none, or it is no JSON object.
    """
    path = config_path(model)
    if not path.is_file():
        raise UserError(f"{model}: no config.json, so this is not a Hugging Face model directory")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: not a JSON object")
    return config
