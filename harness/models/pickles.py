"""Weights in pickle files: a pickle may run any code while it is read, so they are read only where the user says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.models.safetensors_file import names_in_index

if TYPE_CHECKING:
    from pathlib import Path

ALLOW = "--allow-unsafe-pickle"
INDEX_NAME = "pytorch_model.bin.index.json"

_WHOLE = "pytorch_model.bin"
_ENDINGS = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})


def refuse_pickles(path: Path, *, allowed: bool = False) -> None:
    """Refuse a file that is one, or a directory whose weights are.

    Args:
        path: a file, or a directory without safetensors.
        allowed: the user takes the risk, but what would be read is not there.

    Raises:
        UserError: it is; the message says what to do.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    pickled = [file.name for file in files if file.suffix.lower() in _ENDINGS]
    if pickled:
        directory = path if path.is_dir() else path.parent
        if allowed:
            raise UserError(
                f"{directory}: {pickled[0]} is not read: {ALLOW} is for a model directory's {_WHOLE}, a regular file, "
                f"or the shards that its {INDEX_NAME} names"
            )
        raise UserError(
            f"{directory}: the weights are in a pickle file, {pickled[0]}, which may run any code while it is read; "
            f"tokenroof run -m DIRECTORY {ALLOW} takes that risk for {_WHOLE} and its shards; or write them as "
            "safetensors once, with transformers, which reads only numbers from it: "
            "AutoModelForCausalLM.from_pretrained(DIRECTORY).save_pretrained(NEW_DIRECTORY)"
        )


def pickled_weights(directory: Path) -> list[Path]:
    """The pickle files in which transformers looks for a directory's weights: one, or those that its index names.

    Args:
        directory: without safetensors.

    Returns:
        Nothing where it has no such files.

    Raises:
        UserError: shards are missing, or the index is unreadable.
    """
    if (directory / _WHOLE).is_file():
        return [directory / _WHOLE]
    index = directory / INDEX_NAME
    if not index.is_file():
        return []
    names = names_in_index(index)
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise UserError(f"{directory}: missing {', '.join(missing)}, which {INDEX_NAME} names; copy the model again")
    return [directory / name for name in names]
