"""What Ctrl-C left behind, in words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def n_rows(output: Path) -> int:
    """Rows of a result CSV, each of which is one line; 0 where there is no file."""
    if not output.exists():
        return 0
    with output.open("rb") as file:
        return max(sum(1 for _ in file) - 1, 0)


def interrupted(output: Path, n_before: int, further: str = "") -> int:
    """Say it on standard error.

    Args:
        output: the CSV of the run.
        n_before: its `n_rows` when the run began.
        further: how to go on.

    Returns:
        The exit code.
    """
    kept = f"; {output} is complete so far{further}" if n_rows(output) > n_before else " before anything was measured"
    print(f"tokenroof: interrupted{kept}", file=sys.stderr)
    return 130
