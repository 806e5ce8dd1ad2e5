"""Weights in pickle files: a pickle may run any code while it is read, so they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

_ENDINGS = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})


def refuse_pickles(path: Path) -> None:
    """Refuse a file that is one, or a directory whose weights are.

    Args:
        path: a file, or a directory without safetensors.

    Raises:
        UserError: it is; the message says what to do.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    pickled = [file.name for file in files if file.suffix.lower() in _ENDINGS]
    if pickled:
        directory = path if path.is_dir() else path.parent
        raise UserError(
            f"{directory}: the weights are in a pickle file, {pickled[0]}, which may run any code while it is read; "
            "write them as safetensors once, with transformers, which reads only numbers from it: "
            "AutoModelForCausalLM.from_pretrained(DIRECTORY).save_pretrained(NEW_DIRECTORY)"
        )
