"""Numbers that come from people, checked once where they enter the arithmetic."""

from __future__ import annotations


def require(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside the range in which it makes sense; NaN is outside every range.

    Raises:
        ValueError: it is; the message names it.
    """
    if not low <= value <= high:
        raise ValueError(f"{name} is {value:g}, not between {low:g} and {high:g}")


def require_workload(
    context: int, batch: int, k_element_bytes: float = 2, v_element_bytes: float | None = None
) -> None:
    """Refuse a context, a batch or a KV format's bytes that nobody can mean.

    Raises:
        ValueError: one is out of range; the message names it.
    """
    require("context", context, 0, 2**30)
    require("batch", batch, 1, 2**20)
    require("k_element_bytes", k_element_bytes, 0.125, 8)
    if v_element_bytes is not None:
        require("v_element_bytes", v_element_bytes, 0.125, 8)
