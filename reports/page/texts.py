"""How names read on a page."""

from __future__ import annotations

import unicodedata

from results.safe_text import without_bidi_marks

_LONGEST_NAME = 80
_TAIL = 16
_RIGHT_TO_LEFT = {"R", "AL"}


def name(text: object) -> str:
    """A name from a row, for a sentence or a cell: its middle is left out where it is very long.

    A name that reads from right to left is isolated from the text around it, whose order it would change.
    """
    plain = without_bidi_marks(str(text))
    if len(plain) > _LONGEST_NAME:
        plain = f"{plain[: _LONGEST_NAME - _TAIL]}…{plain[-_TAIL:]}"
    if any(unicodedata.bidirectional(character) in _RIGHT_TO_LEFT for character in plain):
        return f"\u2068{plain}\u2069"
    return plain
