"""Names as a figure writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from results.safe_text import one_line, without_bidi_marks

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEAST = 8  # characters that tell something of a name


def short(text: object, most: int) -> str:
    """A name on one line, its middle left out where it is longer than `most` characters."""
    plain = without_bidi_marks(one_line(str(text)))
    if len(plain) <= most:
        return plain
    tail = (most - 1) // 2
    return f"{plain[: most - 1 - tail]}…{plain[-tail:]}"


def label(line: Mapping[Any, Any], telling: list[str], most: int) -> str:
    """An engine, with whatever else tells it from its neighbours.

    Args:
        line: of `data.lines`.
        telling: the columns that differ between the neighbours.
        most: characters.
    """
    return joined([line["backend"], *(line[column] for column in telling), line["settings"]], most)


def joined(cells: list[object], most: int) -> str:
    """The names among cells, with commas between them; the longest of them lose their middle until all fit."""
    names = [short(cell, most) for cell in cells if isinstance(cell, str) and cell]
    for _ in names:
        over = sum(map(len, names)) + 2 * (len(names) - 1) - most
        if over <= 0:
            break
        longest = max(range(len(names)), key=lambda number: len(names[number]))
        names[longest] = short(names[longest], max(_LEAST, len(names[longest]) - over))
    return short(", ".join(names), most)
