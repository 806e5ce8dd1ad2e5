"""Pickled weights as safetensors. Tensors alone are let out of a pickle: nothing else that it asks for is called."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import save_torch_state_dict

from backends.base import BackendError
from backends.torch.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ZIP = b"PK\x03\x04"  # torch.save's container since 1.6, the one that can be mapped
_TIED = "lm_head.weight"  # of two names for one tensor the other is kept: engines look for the input embedding
_FOREIGN = re.compile(r"GLOBAL (\S+)")  # in the restricted unpickler's message


def unpickle(files: Iterable[Path], target: Path) -> None:
    """Write the tensors of `files` to `target`, with an index where they are many.

    The files are mapped and written tensor by tensor, so memory holds no model; one from before torch 1.6 has to be
    read as a whole.

    Args:
        files: as torch.save writes them, each a table of tensors by name.
        target: the new directory; after an error it is incomplete.

    Raises:
        BackendError: a file asks for more than tensors, or is damaged.
    """
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        tensors |= _tensors(file)
    target.mkdir()
    save_torch_state_dict(tensors, target, shared_tensors_to_discard=[name for name in tensors if name.endswith(_TIED)])


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    with file.open("rb") as opened:
        can_be_mapped = opened.read(len(_ZIP)) == _ZIP
    try:
        found: Any = torch.load(file, map_location="cpu", weights_only=True, mmap=can_be_mapped)
    except Exception as error:  # whatever a pickle's instructions lead the unpickler to
        raise BackendError(_told(file.name, error)) from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in found.items()
    ):
        raise BackendError(f"{file.name}: no table of tensors by name, as transformers saves it")
    return {name: _own(tensor) for name, tensor in found.items()}


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """A part of a larger storage as a tensor by itself: safetensors has no views."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _told(name: str, error: Exception) -> str:
    if foreign := _FOREIGN.search(str(error)):
        return f"{name} asks for {foreign[1]}, which is no tensor and is never called; get the model as safetensors"
    if isinstance(error, pickle.UnpicklingError):
        return f"{name} holds something that is no tensor, or is damaged; get the model as safetensors"
    reason = first_line(error).partition(". ")[0]  # what follows is torch's advice to programmers
    return f"{name} is damaged: {reason.rstrip('.')}; copy it again"
