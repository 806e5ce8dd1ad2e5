"""How a caller hears of model files that are read or written."""

from __future__ import annotations

import functools
from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with `(label, done_bytes, total_bytes)`."""


def labelled(progress: Progress | None, label: str) -> Callable[[int, int], None]:
    """Called with `(done_bytes, total_bytes)` of what the label says; says nothing where nobody listens."""
    return functools.partial(progress, label) if progress else _silent


def _silent(_done_bytes: int, _total_bytes: int) -> None:
    pass
