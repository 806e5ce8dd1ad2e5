"""GGUF models on disk: the files that belong to one model, and the models that a directory holds.

llama.cpp's tool splits a model into `NAME-00001-of-0000N.gguf` and so on. Given the first, llama.cpp finds the others
by these names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_PROJECTOR = "mmproj"  # turns pictures into tokens: a file beside the model, by llama.cpp's convention


def model_name(path: Path) -> str:
    """The file's name without its ending and the number of its part."""
    found = _PART.fullmatch(path.name)
    return found["stem"] if found else path.stem if path.suffix == ".gguf" else path.name


def all_parts(path: Path, n_parts: int) -> list[Path]:
    """The files of a model of which this is one, in order.

    Args:
        path: any of them.
        n_parts: how many there are, by the file's own word.

    Raises:
        UserError: some are missing, or the name is none by which llama.cpp would find them.
    """
    found = _PART.fullmatch(path.name)
    if found is None or int(found["count"]) != n_parts or not 1 <= int(found["number"]) <= n_parts:
        raise UserError(
            f"{path}: one of {n_parts} parts of a model, and its name does not say which: llama.cpp finds the others "
            f"by names that end in -00001-of-{n_parts:05}.gguf and so on"
        )
    parts = [path.with_name(f"{found['stem']}-{number:05}-of-{n_parts:05}.gguf") for number in range(1, n_parts + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise UserError(
            f"{path}: the model has {n_parts} parts, and beside it there is no {', '.join(missing)}; copy them too"
        )
    return parts


def models_in(directory: Path) -> list[Path]:
    """The GGUF models of a directory and its subdirectories, a split one by its first part that is there."""
    files = sorted(path for pattern in ("*.gguf", "*/*.gguf") for path in directory.glob(pattern) if path.is_file())
    models = {path.with_name(model_name(path)): path for path in reversed(files) if _PROJECTOR not in path.name}
    return sorted(models.values())


def only_model_in(directory: Path, called: str) -> Path | None:
    """The GGUF model of a directory; None where it has none.

    Args:
        directory: where to look.
        called: what the user calls it.

    Raises:
        UserError: it has several; the message names them.
    """
    models = models_in(directory)
    if len(models) > 1:
        names = ", ".join(model.relative_to(directory).as_posix() for model in models)
        raise UserError(f"{called} holds {len(models)} models: {names}; name one, {called}/FILE")
    return models[0] if models else None
