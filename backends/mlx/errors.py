"""What MLX and mlx-lm raise, as the contract's errors."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backends.base import BackendError, OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OUT_OF_MEMORY = re.compile(r"malloc|out of memory|insufficient memory|unable to allocate", re.IGNORECASE)


@contextmanager
def engine_errors(doing: str, artifact: Path | None = None) -> Iterator[None]:
    """Raise the first line of what went wrong; the artifact's path in it is cut to its name.

    Raises:
        OutOfMemoryError: MLX says so. It does on a GPU; on a Linux CPU it dies instead.
        BackendError: anything else that an engine raises.
    """
    try:
        yield
    except (OSError, LookupError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        if artifact:
            reason = reason.replace(str(artifact), artifact.name)
        kind = OutOfMemoryError if _OUT_OF_MEMORY.search(reason) else BackendError
        raise kind(f"{doing}: {reason}") from error
