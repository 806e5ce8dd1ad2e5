"""How a number reads, in a table, a sentence or a figure: the same measurement is the same text everywhere."""

from __future__ import annotations

from results.amounts import significant

EMPTY = "-"


def number(value: float | None, like: float | None = None) -> str:
    """Four significant digits, more before the point.

    Args:
        value: None or NaN: an empty cell.
        like: another number, to have as many decimals as it.
    """
    if value is None or value != value:  # noqa: PLR0124 (NaN)
        return EMPTY
    if value == 0 and not like:
        return "0"
    size = abs(value if like is None else like)
    if size < 0.01:
        return significant(value)
    return f"{value:.{sum(size < limit for limit in (1, 100, 1000))}f}"


def count(value: float) -> str:
    """A whole number, its thousands apart: 1,234."""
    return f"{int(value):,}"


def number_with(value: float | None, spread: float | None) -> str:
    """A number and its spread, with as many decimals; the spread is left out where it is not known."""
    if spread is None or spread != spread:  # noqa: PLR0124 (NaN)
        return number(value)
    return f"{number(value)} ± {number(spread, like=value)}"


def percent(share: float | None) -> str:
    """A share of 1 in percent, without the sign: 95, 5.3, 0.4, 0.04; never 0 for what is some."""
    if share is None or share != share:  # noqa: PLR0124 (NaN)
        return EMPTY
    value = 100 * share
    if abs(value) >= 9.95 or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 0.095 else significant(value, 1)


def gigabytes(n_bytes: float | None) -> str:
    """GB of 10^9 bytes, three digits, more before the point."""
    if n_bytes is None or n_bytes != n_bytes:  # noqa: PLR0124 (NaN)
        return EMPTY
    return significant(n_bytes / 1e9)
