"""`tokenroof schema`."""

from __future__ import annotations


def schema() -> int:
    """Print every column of a result file: kind, unit, allowed values, in which rows it is filled, and meaning."""
    from results.document import document

    print(document(), end="")
    return 0
