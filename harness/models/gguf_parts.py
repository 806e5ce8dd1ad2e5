"""GGUF models on disk: the files that belong to one model, and the models that a directory holds.

llama.cpp's tool splits a model into `NAME-00001-of-0000N.gguf` and so on. Given the first, llama.cpp finds the others
by these names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path, PurePath

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_PROJECTOR = "mmproj"  # turns pictures into tokens: a file beside the model, by llama.cpp's convention


def model_name(path: PurePath) -> str:
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
    if missing := missing_parts(path):
        raise UserError(
            f"{path}: the model has {n_parts} parts, and beside it there is no {', '.join(missing)}; copy them too"
        )
    return _parts(path, found)


def missing_parts(path: Path) -> list[str]:
    """Files that belong to a model by the name of one of them, and that are not beside it."""
    found = _PART.fullmatch(path.name)
    return [part.name for part in _parts(path, found) if not part.is_file()] if found else []


def _parts(path: Path, found: re.Match[str]) -> list[Path]:
    stem, count = found["stem"], found["count"]
    return [path.with_name(f"{stem}-{number:05}-of-{count}.gguf") for number in range(1, int(count) + 1)]


def is_model(path: PurePath) -> bool:
    """Whether a file is a GGUF model or a part of one, by its name."""
    return path.suffix == ".gguf" and _PROJECTOR not in path.name


def models_in(directory: Path) -> list[Path]:
    """The GGUF models of a directory and its subdirectories, a split one by its first part that is there."""
    files = sorted(path for pattern in ("*.gguf", "*/*.gguf") for path in directory.glob(pattern) if path.is_file())
    models = {path.with_name(model_name(path)): path for path in reversed(files) if is_model(path)}
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
