"""Models that differ in their shape alone, with random weights: written to the cache where it lacks them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from harness.models import cache, synthesis


def written(name: str, config: dict[str, Any]) -> str:
    """A directory of that name, with weights for this configuration."""
    text = json.dumps([config, synthesis.VERSION], sort_keys=True)
    folder = cache.artifact_path(f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}")
    path = folder / name
    with cache.locked(folder):
        if not path.exists():
            synthesis.synthesise(config, path)
    return str(path)
