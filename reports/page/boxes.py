"""Points as few grids: what `tokenroof run` takes is lists, and it does every combination of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Point = tuple[Any, ...]
Box = tuple[tuple[Any, ...], ...]


def boxes(points: Iterable[Point], order: Sequence[int]) -> list[Box]:
    """Cover points with boxes: each point is in exactly one, and no box holds anything else.

    Boxes that are equal in all dimensions but one become one box, in one dimension after the other.

    Args:
        points: `[n]` of one length each; any value that can be a dictionary's key.
        order: the dimensions that may hold several values, the first to be merged first.

    Returns:
        For each box the values in each dimension, in the order in which they were met.
    """
    found: list[Box] = [tuple((value,) for value in point) for point in dict.fromkeys(points)]
    for dimension in order:
        alike: dict[Box, list[Any]] = defaultdict(list)
        for box in found:
            alike[box[:dimension] + box[dimension + 1 :]] += box[dimension]
        found = [(*rest[:dimension], tuple(values), *rest[dimension:]) for rest, values in alike.items()]
    return found
