"""Ollama's store: `manifests/REGISTRY/OWNER/NAME/TAG` names the layers of a model, `blobs/sha256-…` holds them.

The layer of the weights is a GGUF file whose name has no ending.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.models.stores.listing import listing

if TYPE_CHECKING:
    from collections.abc import Iterator

_REGISTRY, _OWNER, _TAG = "registry.ollama.ai", "library", "latest"
_WEIGHTS = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SERVICE = Path("/usr/share/ollama/.ollama/models")  # of Linux's system service


def find(name: str) -> tuple[str, Path]:
    """The model of this name in Ollama's store.

    Args:
        name: as Ollama has it: `llama3.2`, `llama3.2:1b`, `owner/name:tag`, `hf.co/owner/name:tag`.

    Returns:
        Its name, as `ollama list` prints it, and its GGUF file.

    Raises:
        UserError: there is no store, no such model, or its weights are not one GGUF file.
    """
    root = _root()
    manifest = root / "manifests" / _manifest(name)
    if not manifest.is_file():
        raise UserError(f"ollama:{name}: not in {root}; {listing(name, sorted(_names(root)))}; ollama pull {name}")
    digests = [layer.get("digest") for layer in _layers(manifest) if layer.get("mediaType") == _WEIGHTS]
    if len(digests) != 1 or not isinstance(digests[0], str) or not _DIGEST.fullmatch(digests[0]):
        raise UserError(f"ollama:{name}: its weights are not one GGUF file, which is what llama.cpp reads")
    blob = root / "blobs" / digests[0].replace(":", "-")
    if not blob.is_file():
        raise UserError(f"ollama:{name}: {blob} is missing; ollama pull {name}")
    return _shown(manifest.relative_to(root / "manifests")), blob


def _root() -> Path:
    chosen = os.environ.get("OLLAMA_MODELS")
    places = [Path(chosen).expanduser()] if chosen else [Path.home() / ".ollama" / "models", _SERVICE]
    for place in places:
        if (place / "manifests").is_dir():
            return place
    said = " or ".join(map(str, places))
    raise UserError(f"Ollama keeps no models in {said}; the environment variable OLLAMA_MODELS names another folder")


def _manifest(name: str) -> Path:
    """Its place below `manifests`."""
    model, colon, tag = name.rpartition(":")
    parts = (model if colon else tag).split("/")
    defaults = (_REGISTRY, _OWNER)[: max(0, 3 - len(parts))]
    return Path(*defaults, *parts, tag if colon else _TAG)


def _names(root: Path) -> Iterator[str]:
    """As `ollama list` prints them."""
    for path in (root / "manifests").glob("*/*/*/*"):
        if path.is_file():
            yield _shown(path.relative_to(root / "manifests"))


def _shown(manifest: Path) -> str:
    registry, owner, model, tag = manifest.parts
    parts = (registry, owner, model) if registry != _REGISTRY else (owner, model) if owner != _OWNER else (model,)
    return f"{'/'.join(parts)}:{tag}"


def _layers(manifest: Path) -> list[dict[str, Any]]:
    try:
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{manifest}: not a readable manifest of Ollama's") from error
    return [layer for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else []
