"""What llama.cpp's log tells of a failure, as the contract's errors."""

from __future__ import annotations

import re

from backends.base import BackendError, OutOfMemoryError

_NO_MEMORY = re.compile(r"alloc|out of memory|insufficient memory", re.IGNORECASE)


def failure(what: str, reason: str) -> BackendError:
    """The error to raise.

    Args:
        what: was tried, as the user knows it.
        reason: in llama.cpp's words; where they are about an allocation, it is an `OutOfMemoryError`.
    """
    kind = OutOfMemoryError if _NO_MEMORY.search(reason) else BackendError
    return kind(f"{what}: {reason}")
