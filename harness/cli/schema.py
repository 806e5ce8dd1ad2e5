"""`tokenroof schema`."""

from __future__ import annotations


def schema() -> int:
    """Explain every column of a result file.

    Its kind, unit and allowed values, in which rows it is filled, and what it means.
    """
    from results.document import document

    print(document(), end="")
    return 0
