"""From what a user calls a model to its place on disk."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.models.presets import PRESETS
from harness.models.stores import hub, hub_download, lmstudio, ollama

_ENDINGS = {".gguf", ".safetensors", ".json"}


@dataclass(frozen=True)
class Place:
    """A file or directory, and the model's name where the path does not tell it."""

    path: Path
    name: str | None = None


class UnknownModelError(UserError):
    """A word that is neither a preset nor a path."""


def find(spec: str, *, download: bool = False, allow_pickle: bool = False) -> Place:
    """A path, `ollama:NAME`, `lmstudio:PUBLISHER/NAME`, or a Hugging Face repository that is in its cache.

    Args:
        spec: as the user wrote it.
        download: fetch a repository that is not there.
        allow_pickle: fetch pickled weights, where it has no others.

    Raises:
        UnknownModelError: the word does not look like a path or a repository.
        UserError: nothing is there.
    """
    try:
        path = Path(spec).expanduser()
        if path.exists():
            return Place(path)
    except (OSError, RuntimeError) as error:  # no access, a name that is too long, nobody's home directory
        raise UserError(f"{spec}: cannot be looked for: {getattr(error, 'strerror', None) or error}") from error
    store, _, name = spec.partition(":")
    if store == "ollama":
        called, blob = ollama.find(name)
        return Place(blob, called)
    if store == "lmstudio":
        return Place(lmstudio.find(name))
    if asked := hub.wanted(spec):
        found = hub_download.download(asked, allow_pickle=allow_pickle) if download else hub.find(asked)
        return Place(found, spec.rpartition("/")[2] if found.is_dir() else None)
    if "/" in spec or "\\" in spec or path.suffix in _ENDINGS:
        raise UserError(f"{spec}: no such file or directory")
    nearest = difflib.get_close_matches(spec.lower(), PRESETS, n=3)
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else "."
    raise UnknownModelError(f"unknown model {spec!r}{hint} `tokenroof models` lists the presets")
