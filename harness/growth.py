"""What a file or a directory has grown to, told while another's one long call writes it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.models.cache import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LOOK_S = 0.5


@contextmanager
def watched(path: Path, grown: Callable[[int], None]) -> Iterator[None]:
    """Look while the block runs; a thread does, and has ended when the block has.

    Args:
        path: need not exist yet.
        grown: called with the bytes on the disk, whenever there are more.
    """
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
