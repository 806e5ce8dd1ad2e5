"""Short files of the kernel (sysfs), which hold one value each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def text(path: Path) -> str:
    """A file's text; empty where there is none, it may not be read, or its driver refuses."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return ""


def number(path: Path) -> int | None:
    """A file's whole number; None where there is none."""
    with contextlib.suppress(ValueError):
        return int(text(path))
    return None
