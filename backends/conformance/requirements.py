"""What a clause may require of a session's answers, and the error that says which did not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import Ids, Logits


class BrokenClauseError(Exception):
    """A clause did not hold; the message says what was seen."""


def require(condition: bool, detail: str) -> None:
    """Raise with what was seen where a condition does not hold."""
    if not condition:
        raise BrokenClauseError(detail)


def require_array(array: Any, shape: tuple[int, ...], dtype: type) -> None:
    """It is a numpy array of this shape and type."""
    require(isinstance(array, np.ndarray), f"{type(array).__name__} instead of a numpy array")
    require(array.shape == shape, f"shape {array.shape} instead of {shape}")
    require(array.dtype == dtype, f"{array.dtype} instead of {np.dtype(dtype)}")


def require_argmax(ids: Ids, logits: Logits, tolerance: float) -> None:
    """`ids` `[batch]` are argmaxes of `logits` `[batch, vocab]`."""
    require_array(ids, (len(logits),), np.int32)
    gap = logits.max(axis=-1) - np.take_along_axis(logits, ids[:, None], axis=-1)[:, 0]
    allowed = tolerance * np.abs(logits).max(axis=-1)
    require(bool((gap <= allowed).all()), f"argmax {ids}, expected {logits.argmax(axis=-1)}")


def require_close(actual: Logits, expected: Logits, tolerance: float) -> None:
    """`[batch, n, vocab]` agree at every position."""
    require_array(actual, expected.shape, np.float32)
    norm = np.linalg.norm(actual - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    worst = float(norm.max())
    position = int(norm.max(axis=0).argmax())
    require(worst <= tolerance, f"relative L2 {worst:.2g} at position {position}, allowed {tolerance:.2g}")


def require_refused(call: Callable[[], object], name: str) -> None:
    """A call with more tokens than there is room for raises BackendError, and nothing else."""
    try:
        call()
    except BackendError:
        return
    raise BrokenClauseError(f"{name} took more tokens than the cache holds")


def require_known_or_explained(name: str, value: object, unavailable: dict[str, str]) -> None:
    """A fact is told, or `unavailable` says why not."""
    require(value is not None or bool(unavailable.get(name)), f"{name} is None and unavailable says no reason")
