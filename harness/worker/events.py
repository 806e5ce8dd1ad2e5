"""What the worker tells its parent, and how what an engine throws is told."""

from __future__ import annotations

import json
import os
import traceback
from typing import TYPE_CHECKING, TextIO, TypeVar

from backends.base import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Teller:
    """Writes one event a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: str, **content: object) -> None:
        """Send an event with its content, which must be JSON-serialisable."""
        self._stream.write(json.dumps({"event": event, **content}) + "\n")
        self._stream.flush()


def claim_stdout() -> TextIO:
    """The real standard output, for events alone: an engine that prints would spoil them, so it prints to stderr."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return events


def guard(call: Callable[[], T], tell: Teller, event: str, **where: object) -> T | None:
    """Run `call`; whatever an engine throws becomes an event, since it must cost one case and not the run."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        if not isinstance(error, BackendError):
            traceback.print_exc()
        tell(event, **where, error=one_line(error))
        return None


def one_line(error: BaseException) -> str:
    """An error for people."""
    text = " ".join(str(error).split())
    if isinstance(error, BackendError) and text:
        return text
    if isinstance(error, MemoryError):
        return "out of host memory; take a smaller model, a shorter context or a smaller batch"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
