"""What is declared of a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "int", "float", "json"]


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: holds the unit where there is one.
        kind: text, int, float, or json (kept as text).
        shape: of json: dict or list.
        lengths: of a list that holds numbers, null for one that is not finite: how many they may be.
        meaning: for people, in one line.
        group: what it is about.
        unit: of its numbers; "" where there is none.
        required: the provenances of the rows in which the cell is never empty.
        least: smallest allowed number.
        most: largest allowed number.
        pattern: what the whole of a text must match, as a regular expression that RE2 and Python read alike.
        since: the schema version that brought it.
    """

    name: str
    kind: Kind
    meaning: str
    group: str = ""
    unit: str = ""
    required: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    pattern: str = ""
    since: int = 1
    shape: type[dict[str, object] | list[object]] | None = None
    lengths: tuple[int, ...] = ()

    @property
    def document(self) -> str:
        """What a json cell holds, in words."""
        if self.lengths:
            return f"list of {' or '.join(map(str, self.lengths))} numbers"
        return "object" if self.shape is dict else "list"
