"""Reading a Hugging Face directory's `config.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def read_config(directory: Path) -> dict[str, Any]:
    """The configuration of a model directory.

    Raises:
        UserError: there is none, or it is no JSON object.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise UserError(f"{directory}: no config.json, so this is not a Hugging Face model directory")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: not a JSON object")
    return config
