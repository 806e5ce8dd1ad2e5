"""Do cells hold what their columns allow? Asked of whole columns at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.cells import document
from results.errors import ResultsError
from results.schema import ALWAYS, COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from results.schema import Column

    Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Fault:
    """A cell that holds what its column does not allow."""

    row: int  # from 0
    column: str
    what: str

    def __str__(self) -> str:
        return f"column {self.column}: {self.what}"


def validate(table: pa.Table, name: str, place: Callable[[int], str]) -> None:
    """Refuse a table, in the current schema, that has a fault.

    Args:
        table: as `results.formats.load` gives it.
        name: of the file, for the message.
        place: where a row is, for the message.

    Raises:
        ResultsError: the first fault by row, with its place and column.
    """
    found = first_faults(table, np.zeros(table.num_rows, np.int64))
    for fault in found.values():
        raise ResultsError(f"{name}: {place(fault.row)}, {fault}")


def first_faults(table: pa.Table, part: NDArray[np.int64]) -> dict[int, Fault]:
    """The first fault of each part of a table, by part; parts without one are absent.

    Args:
        table: in the current schema, each column one chunk.
        part: of each row.
    """
    first: dict[int, Fault] = {}
    for column in COLUMNS:
        cells = table[column.name].combine_chunks()
        for bad, what in _checks(column, cells, table):
            rows = np.flatnonzero(bad)
            for row in rows[np.unique(part[rows], return_index=True)[1]].tolist():
                known = first.get(int(part[row]))
                if known is None or row < known.row:
                    first[int(part[row])] = Fault(row, column.name, _shown(cells, row) + what)
    return first


def _checks(column: Column, cells: pa.Array, table: pa.Table) -> Iterator[tuple[Flags, str]]:
    """Which cells break each of the column's rules, and what to say of one."""
    if column.required and cells.null_count:
        yield _flags(cells.is_null()) & _required(column, table), "is empty"
    if column.kind == "json":
        yield _by_text(cells, lambda texts: _is_no_document(texts, column)), f"is no JSON {column.document}"
    elif column.pattern:
        yield _by_text(cells, lambda texts: _differs(texts, column.pattern)), _wanted(column.pattern)
    if column.least is not None:
        yield _flags(pc.less(cells, column.least)), f"is below {column.least:g}"
    if column.most is not None:
        yield _flags(pc.greater(cells, column.most)), f"is above {column.most:g}"
    if column.kind == "float":
        yield _flags(pc.invert(pc.is_finite(cells))), "is no finite number"


def _required(column: Column, table: pa.Table) -> Flags:
    if column.required == ALWAYS:
        return np.ones(table.num_rows, bool)
    provenance = table["provenance"].combine_chunks()
    return _by_text(provenance, lambda texts: _flags(pc.is_in(texts, pa.array(column.required))))


def _by_text(cells: pa.DictionaryArray, is_bad: Callable[[pa.Array], Flags]) -> Flags:
    """What holds for each cell's text, asked once for each distinct one; empty cells are not bad."""
    bad = np.append(is_bad(cells.dictionary), False)
    found: Flags = bad[cells.indices.fill_null(len(bad) - 1).to_numpy(zero_copy_only=False)]
    return found


def _differs(texts: pa.Array, pattern: str) -> Flags:
    return ~_flags(pc.match_substring_regex(texts, f"^(?:{pattern})$"))


def _is_no_document(texts: pa.Array, column: Column) -> Flags:
    return np.array([document(column, text) is None for text in texts.to_pylist()], bool)


def _wanted(pattern: str) -> str:
    words = pattern.split("|")
    return f"is not {' or '.join(words)}" if all(word.isalpha() for word in words) else f"does not match {pattern}"


def _flags(flags: pa.Array) -> Flags:
    found: Flags = flags.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _shown(cells: pa.Array, row: int) -> str:
    value = cells[row].as_py()
    if value is None:
        return ""
    return f"{repr(value)[:60]} " if isinstance(value, str) else f"{value} "
