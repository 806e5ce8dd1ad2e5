"""How numbers, cases and names read on a page."""

from __future__ import annotations

import unicodedata

from results.safe_text import without_bidi_marks

EMPTY = "-"

_LONGEST_NAME = 80
_TAIL = 16
_RIGHT_TO_LEFT = {"R", "AL"}


def number(value: float | None, like: float | None = None) -> str:
    """Four significant digits, more before the point.

    Args:
        value: None or NaN: an empty cell.
        like: another number, to have as many decimals as it.
    """
    if value is None or value != value:  # noqa: PLR0124 (NaN)
        return EMPTY
    if value == 0:
        return "0"
    size = abs(value if like is None else like)
    if size < 0.01:
        return f"{value:.3g}"
    return f"{value:.{sum(size < limit for limit in (1, 100, 1000))}f}"


def percent(share: float | None) -> str:
    """A share of 1 in whole percent, without the sign."""
    return EMPTY if share is None or share != share else f"{100 * share:.0f}"  # noqa: PLR0124 (NaN)


def gigabytes(n_bytes: float | None) -> str:
    """GB of 10^9 bytes, three digits."""
    return EMPTY if n_bytes is None or n_bytes != n_bytes else f"{n_bytes / 1e9:.3g}"  # noqa: PLR0124 (NaN)


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
