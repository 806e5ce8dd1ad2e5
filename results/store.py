"""The append-only result file: one header, one row a repetition, each on disk before the next is measured."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from results import csv_file, lines
from results.cells import cell
from results.csv_file import START_BYTES, header_line, is_whole, parse_header
from results.errors import ResultsError
from results.migrate import migration
from results.schema import ALWAYS, COLUMNS, NAMES, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import FileIO

HEADER = header_line(list(NAMES))


class Store:
    """A result CSV, open for appending by any number of processes at once.

    Making one proves that rows can be written: it creates the file with its header, or checks the one that is
    there and repairs a last line that a power cut tore. Complete rows are never touched.

    Raises:
        ResultsError: no place for results, or the file holds something else.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() != ".csv":
            raise ResultsError(
                f"{self.path}: rows are appended to CSV only; choose an output that ends in .csv "
                "(`tokenroof merge` turns it into .parquet or .jsonl)"
            )
        with self._open():
            pass

    def append(self, row: Mapping[str, object]) -> None:
        """Write one row and force it to disk.

        Whether its numbers and words are within what their columns allow is not asked here, since a strange
        measurement is better kept than lost: `results.validate` asks where files meet.

        Args:
            row: cells by column name; what is absent or None is empty, and so is a float that is not finite.
                JSON columns take a dict or a list. Line breaks in text become spaces, home directories `~`.
                `schema_version` is filled in.

        Raises:
            ResultsError: it could not be written; earlier rows are intact.
            ValueError, TypeError: a fault of the caller: an unknown column, an empty required cell, a wrong
                type.
        """
        with self._open() as (file, names):
            lines.append(file, _line(row, names))

    @contextmanager
    def _open(self) -> Iterator[tuple[FileIO, list[str]]]:
        """The locked file, fit for appending, and its column names."""
        with lines.locked(self.path), self.path.open("a+b", buffering=0) as file:
            file.seek(0)
            start = file.read(START_BYTES)
            if len(start) < len(HEADER) and HEADER.startswith(start):  # new, or torn within its first line
                file.truncate(0)
                lines.append(file, HEADER)
                start = HEADER
            header = parse_header(start, self.path)
            if header.version != SCHEMA_VERSION:
                raise ResultsError(
                    f"{self.path}: of schema {header.version}, rows are now of schema {SCHEMA_VERSION}; migrate it "
                    f"first: {migration([self.path])}"
                )
            lines.mend(file, partial(is_whole, width=len(header.names)))
            yield file, header.names


def _line(row: Mapping[str, object], names: list[str]) -> bytes:
    unknown = row.keys() - set(NAMES)
    if unknown:
        raise ValueError(f"no such column: {', '.join(sorted(unknown))}")
    cells = {column.name: cell(column, row.get(column.name)) for column in COLUMNS}
    cells["schema_version"] = SCHEMA_VERSION
    for column in COLUMNS:
        if cells[column.name] is None and (column.required == ALWAYS or cells["provenance"] in column.required):
            raise ValueError(f"{column.name}: never empty")
    return csv_file.line(cells, names)
