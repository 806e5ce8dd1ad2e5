"""How many of what, and how many bytes: the same in every text, from a progress line to a report."""

from __future__ import annotations

_BYTES = ("B", "kB", "MB", "GB", "TB")
_COUNTS = ("", "k", "M", "B", "T")


def counted(n: int | str, one: str, many: str = "") -> str:
    """`1 case`, `2 cases`.

    Args:
        n: a whole number, or its text.
        one: the noun for 1, with whatever must agree with it: "case is".
        many: for every other number; empty: `one` with an s.
    """
    return f"{n} {one if str(n) == '1' else many or f'{one}s'}"


def size(n_bytes: float) -> str:
    """`512 B`, `49.4 MB`, `16.0 GB`: three significant digits, in units of powers of 1000."""
    return _scaled(n_bytes, _BYTES)


def about(n: int) -> str:
    """A large number in short: `512`, `49.4 M`, `1.24 B`."""
    return _scaled(n, _COUNTS).rstrip()


def significant(value: float, digits: int = 3) -> str:
    """So many significant digits, but all of those before the point, and no exponent: 0.00123, 1.50, 16.0, 1511."""
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(digits - 1 - exponent, 0)}f}"


def _scaled(value: float, units: tuple[str, ...]) -> str:
    unit, *larger = units
    while larger and abs(value) >= 999.5:  # what would be rounded to 1000
        value, unit = value / 1000, larger.pop(0)
    return f"{value:.0f} {unit}" if unit == units[0] else f"{significant(value)} {unit}"
