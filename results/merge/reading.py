"""The files of a merge as tables of many rows each, without those files that are broken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from results.errors import ResultsError
from results.formats import load, place
from results.merge.ahead import ahead
from results.validate import first_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_ROWS = 1 << 15  # in a table, more or less: the work on a table has a fixed part, which small files share


@dataclass
class Source:
    """Reads files; knows afterwards what it found.

    Attributes:
        paths: the files.
        broken: what is wrong with a file, by its number, in their order; its rows are left out.
        versions: the schema version of each file that is not broken, by its number.
        n_rows: rows in the files that are not broken.
    """

    paths: Sequence[Path]
    broken: dict[int, str] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    n_rows: int = 0

    def tables(self) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        """Tables of whole files' rows, each column one chunk, and the number of the file that each row is from."""
        parts: list[tuple[int, pa.Table]] = []
        for number, table in self._loaded():
            parts.append((number, table))
            if sum(len(table) for _, table in parts) >= _ROWS:
                yield self._checked(parts)
                parts = []
        if parts:
            yield self._checked(parts)
        self.broken = dict(sorted(self.broken.items()))

    def _loaded(self) -> Iterator[tuple[int, pa.Table]]:
        for number, loaded in enumerate(ahead(load, self.paths)):
            try:
                table, self.versions[number] = loaded.result()
            except ResultsError as error:
                self.broken[number] = str(error)
            else:
                yield number, table

    def _checked(self, parts: list[tuple[int, pa.Table]]) -> tuple[pa.Table, NDArray[np.int64]]:
        """The rows of several files, without those of files that hold what a column does not allow."""
        table = pa.concat_tables([table for _, table in parts], promote_options="default")
        table = table.unify_dictionaries().combine_chunks()
        file = np.repeat([number for number, _ in parts], [len(table) for _, table in parts])
        faults = first_faults(table, file)
        for number, fault in faults.items():
            line = place(self.paths[number], fault.row - int(np.searchsorted(file, number)))
            self.broken[number] = f"{self.paths[number]}: {line}, {fault}"
            del self.versions[number]
        if faults:
            sound = ~np.isin(file, list(faults))
            table, file = table.filter(pa.array(sound)).combine_chunks(), file[sound]
        self.n_rows += len(file)
        return table, file
