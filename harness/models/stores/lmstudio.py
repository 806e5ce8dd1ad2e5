"""LM Studio's store: `models/PUBLISHER/NAME/`, as on Hugging Face: GGUF files, or a directory of MLX's."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UserError
from harness.models.stores.listing import listing

_ROOTS = (Path(".lmstudio") / "models", Path(".cache") / "lm-studio" / "models")  # since 0.3.6, and before


def find(name: str) -> Path:
    """The directory of a model in LM Studio's store, or one of its files.

    Args:
        name: `publisher/name`, or `publisher/name/file.gguf`.

    Raises:
        UserError: there is no store or no such model.
    """
    roots = [root for root in (Path.home() / root for root in _ROOTS) if root.is_dir()]
    if not roots:
        said = " or ".join(str(Path.home() / root) for root in _ROOTS)
        raise UserError(f"LM Studio keeps no models in {said}; if they are elsewhere, give the path itself")
    for root in roots:
        if len(Path(name).parts) >= 2 and (root / name).exists():
            return root / name
    there = [path.relative_to(root).as_posix() for root in roots for path in root.glob("*/*") if path.is_dir()]
    raise UserError(f"lmstudio:{name}: not in {' or '.join(map(str, roots))}; {listing(name, there)}")
