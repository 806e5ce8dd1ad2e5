"""The worker's side: the engine writes, and what has grown on the disk is told meanwhile."""

from __future__ import annotations

import importlib
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from backends.registry import BACKENDS
from harness.models.cache import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK_S = 0.5


def quantise(
    backend: str, source: str, target: str, weight_format: str, n_threads: int, grown: Callable[[int], None]
) -> None:
    """Have an engine write `target`.

    Args:
        backend: its name.
        source: path of a Hugging Face directory or a .gguf file.
        target: path of the new one, of the same kind.
        weight_format: the engine's own name of it.
        n_threads: that it computes with.
        grown: called with the bytes on the disk, whenever there are more.

    Raises:
        BackendError: the engine cannot.
    """
    engine = importlib.import_module(f"{BACKENDS[backend].module}.quantise")
    with _watched(Path(target), grown):
        engine.quantise(Path(source), Path(target), weight_format, n_threads)


@contextmanager
def _watched(path: Path, grown: Callable[[int], None]) -> Iterator[None]:
    """The engine is one long call, so a thread looks; it has ended when the block has."""
    ended = threading.Event()

    def look() -> None:
        before = 0
        while not ended.wait(_LOOK_S):
            if (n_bytes := size_of(path)) > before:
                before = n_bytes
                grown(n_bytes)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
