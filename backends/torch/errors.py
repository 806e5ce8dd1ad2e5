"""What torch and transformers raise, told in one line."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import transformers
from safetensors import SafetensorError

from backends.base import BackendError, OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

# ImportError: a package that transformers needs for weights that are quantised in this way.
_LOADING = (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError)


def first_line(error: BaseException) -> str:
    """Of the message; the error's class where there is none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def reason(error: BaseException) -> str:
    """The error's class and first two lines, without the paths of this machine."""
    text = " ".join(str(error).split("\n")[:2])
    words = ("…" if "/" in word or "\\" in word else word for word in text.split())
    return f"{type(error).__name__}: {' '.join(words)}"


@contextmanager
def loading_errors(name: str) -> Iterator[None]:
    """Whatever transformers raises about a model, called `name`, that it cannot read."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except _LOADING as error:
        raise BackendError(
            f"transformers {transformers.__version__} cannot load {name}: {first_line(error)}"
        ) from error


@contextmanager
def running_errors() -> Iterator[None]:
    """Running out of memory, told apart from other failures."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"torch: {first_line(error)}") from error
    except RuntimeError as error:
        # The CPU allocator has no class of its own.
        if "DefaultCPUAllocator" in str(error):
            raise OutOfMemoryError(f"torch: out of host memory: {first_line(error)}") from error
        raise
