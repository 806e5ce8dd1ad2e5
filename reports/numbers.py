"""How a number reads, in a table, a sentence or a figure: the same measurement is the same text everywhere."""

from __future__ import annotations

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
        return f"{value:.3g}"
    return f"{value:.{sum(size < limit for limit in (1, 100, 1000))}f}"


def number_with(value: float | None, spread: float | None) -> str:
    """A number and its spread, with as many decimals; the spread is left out where it is not known."""
    if spread is None or spread != spread:  # noqa: PLR0124 (NaN)
        return number(value)
    return f"{number(value)} ± {number(spread, like=value)}"


def percent(share: float | None) -> str:
    """A share of 1 in whole percent, without the sign."""
    if share is None or share != share:  # noqa: PLR0124 (NaN)
        return EMPTY
    return f"{100 * share:.0f}"


def gigabytes(n_bytes: float | None) -> str:
    """GB of 10^9 bytes, three digits, more before the point."""
    if n_bytes is None or n_bytes != n_bytes:  # noqa: PLR0124 (NaN)
        return EMPTY
    value = n_bytes / 1e9
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"
