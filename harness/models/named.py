"""From what a user calls a model to its place on disk."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.models.presets import PRESETS
from harness.models.stores import hub, lmstudio, ollama

_ENDINGS = {".gguf", ".safetensors", ".json"}


@dataclass(frozen=True)
class Place:
    """A file or directory, and the model's name where the path does not tell it."""

    path: Path
    name: str | None = None


def find(spec: str) -> Place:
    """A path, `ollama:NAME`, `lmstudio:PUBLISHER/NAME`, or a Hugging Face repository that is in its cache.

    Raises:
        UserError: nothing is there.
    """
    path = Path(spec).expanduser()
    if path.exists():
        return Place(path)
    store, _, name = spec.partition(":")
    if store == "ollama":
        called, blob = ollama.find(name)
        return Place(blob, called)
    if store == "lmstudio":
        return Place(lmstudio.find(name))
    if hub.is_repository(spec):
        found = hub.find(spec)
        return Place(found, spec.rpartition("/")[2] if found.is_dir() else None)
    if "/" in spec or "\\" in spec or path.suffix in _ENDINGS:
        raise UserError(f"{spec}: no such file or directory")
    nearest = difflib.get_close_matches(spec.lower(), PRESETS, n=3)
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else "."
    raise UserError(f"unknown model {spec!r}{hint} `tokenroof models` lists the presets")
