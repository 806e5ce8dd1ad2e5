"""What many rows say, held once for each distinct saying: a million rows have few machines, models and probes."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from results.arrow import TEXT, plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Indices = NDArray[np.intp]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # an odd number without pattern: 2⁶⁴ over the golden ratio


def cell_hashes(table: pa.Table) -> dict[str, Hashes]:
    """A 64-bit hash of each cell, by column; 0 for an empty one, so that a column of empty cells is as good as none.

    Args:
        table: each column one chunk.
    """
    return {name: _hashes(table[name].combine_chunks(), name) for name in table.column_names}


def row_hashes(cells: dict[str, Hashes], columns: Iterable[str]) -> Hashes:
    """A hash of each row's cells in some columns, whatever their order."""
    return reduce(np.add, (cells[name] for name in columns))


def _hashes(cells: pa.Array, name: str) -> Hashes:
    if cells.type == TEXT:
        of_text = np.append(_hashes_of(cells.dictionary.to_numpy(zero_copy_only=False), name), np.uint64(0))
        found: Hashes = of_text[cells.indices.fill_null(len(of_text) - 1).to_numpy(zero_copy_only=False)]
        return found
    hashes = _hashes_of(cells.fill_null(0).to_numpy(zero_copy_only=False), name)
    return np.where(cells.is_null().to_numpy(zero_copy_only=False), np.uint64(0), hashes)


def _hashes_of(values: NDArray[np.generic], name: str) -> Hashes:
    """The column's name goes in, so that equal cells of two columns do not look alike."""
    key = pd.util.hash_array(np.array([name], object))[0]
    hashes: Hashes = (pd.util.hash_array(values, categorize=False) ^ key) * _MIX
    return hashes ^ (hashes >> np.uint64(32))


class Facts:
    """The distinct values of some columns together, gathered table by table, and where each row's are among them."""

    def __init__(self, columns: Iterable[str]) -> None:
        self.columns = list(dict.fromkeys(columns))
        self._rows: list[Hashes] = []
        self._distinct: list[Hashes] = []
        self._tables: list[pa.Table] = []

    def add(self, table: pa.Table, cells: dict[str, Hashes], file: NDArray[np.int64]) -> None:
        """Take in a table.

        Args:
            table: has the columns.
            cells: its `cell_hashes`.
            file: the number of the file that each row is from.
        """
        rows = row_hashes(cells, self.columns)
        first = np.flatnonzero(~pd.Series(rows).duplicated())
        self._rows.append(rows)
        self._distinct.append(rows[first])
        self._tables.append(plain(table.select(self.columns).take(first)).append_column("file", pa.array(file[first])))

    def gather(self) -> tuple[pd.DataFrame, list[Indices]]:
        """All that was taken in.

        Returns:
            The distinct values in the order of their first rows, with the number of that row's `file`; and for each
            table that was added, the place of each of its rows among them.
        """
        hashes = np.concatenate(self._distinct)
        ordered, first = np.unique(hashes, return_index=True)
        in_order = np.sort(first)
        place = np.argsort(np.argsort(first))  # of a hash in `ordered` among the first rows
        distinct = pa.concat_tables(self._tables).take(in_order)
        table: pd.DataFrame = distinct.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return table, [place[np.searchsorted(ordered, rows)] for rows in self._rows]
