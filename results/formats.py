"""Result files by the ending of their names: `.csv`, `.jsonl` and `.parquet`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd
import pyarrow as pa

from results import csv_file, jsonl_file, lines, parquet_file
from results.arrow import aligned, in_order, on_one_line, schema_of
from results.cells import cell, normal_json
from results.errors import ResultsError
from results.migrate import migrate
from results.safe_text import one_line
from results.schema import BY_NAME, SCHEMA_VERSION
from results.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from typing import BinaryIO


class Format(Protocol):
    """What a module must offer for its file format."""

    def load(self, path: Path) -> tuple[pa.Table, int]:
        """All rows, with the file's own columns, and its schema version; ResultsError or OSError."""

    def writer(self, file: BinaryIO, names: list[str]) -> AbstractContextManager[Callable[[pa.Table], None]]:
        """Write a file with these columns: rows with each call of what is yielded."""


_FORMATS: dict[str, Format] = {".csv": csv_file, ".jsonl": jsonl_file, ".parquet": parquet_file}


def format_of(path: Path) -> Format:
    """The format that a file's name stands for.

    Raises:
        ResultsError: it stands for none.
    """
    if path.suffix.lower() not in _FORMATS:
        raise ResultsError(f"{path}: results are kept in files that end in .csv, .jsonl or .parquet")
    return _FORMATS[path.suffix.lower()]


def load(path: Path) -> tuple[pa.Table, int]:
    """A result file's rows in the current schema, its own columns too, and the version it was written in.

    Raises:
        ResultsError: the file cannot be read, is no result file, or has a broken line, which is named.
    """
    try:
        table, version = format_of(path).load(path)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror or error}") from error
    versions = table["schema_version"].to_numpy()
    strange = (versions != version).nonzero()[0]
    if len(strange):
        raise ResultsError(
            f"{path}: {place(path, strange[0])}, column schema_version: {table['schema_version'][strange[0]]} "
            f"among rows of schema {version}; put each version into a file of its own"
        )
    return migrate(on_one_line(table), version), version


def place(path: Path, row: int) -> str:
    """Where a person finds a row of a file, counted from 0."""
    first_line = {".csv": 2, ".jsonl": 1}
    kind = path.suffix.lower()
    return f"line {row + first_line[kind]}" if kind in first_line else f"row {row + 1}"


@contextmanager
def replacing(path: Path, names: list[str]) -> Iterator[Callable[[pa.Table], None]]:
    """Write a file anew: each call of what is yielded adds rows; the old file stays until the new one is on disk.

    Whoever calls holds the lock of `path`. A fault leaves no trace.
    """
    form = format_of(path)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file, ThreadPoolExecutor(1) as disk:
            syncs: list[Future[None]] = []

            def sync() -> None:
                """Begin one, and wait for the one before: left alone, the system keeps gigabytes for the last."""
                syncs.append(disk.submit(os.fsync, file.fileno()))
                if syncs[1:]:
                    syncs.pop(0).result()

            with form.writer(file, names) as write:

                def write_on(table: pa.Table) -> None:
                    write(table)
                    sync()

                yield write_on
            file.flush()
            sync()
            syncs.pop().result()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write(rows: pd.DataFrame, path: Path | str) -> None:
    """Write rows as one new file, in place of an old one of that name.

    Args:
        rows: a column for each name of the schema that any row fills, and any others, which are kept as text.
            JSON columns hold text, dicts or lists. `schema_version` is filled in.
        path: ends in `.csv`, `.jsonl` or `.parquet`.

    Raises:
        ResultsError: it cannot be written, or a cell is not as the schema wants it; an old file is then as it was.
        TypeError: a cell is of another type than its column.
    """
    path = Path(path)
    table = _table(rows)
    validate(table, str(path), lambda row: f"row {row + 1}")
    with lines.locked(path), replacing(path, table.column_names) as write_rows:
        write_rows(table)


def _table(rows: pd.DataFrame) -> pa.Table:
    cells = {str(name): _cells(str(name), column) for name, column in rows.items()}
    cells["schema_version"] = [SCHEMA_VERSION] * len(rows)
    table = pa.table(cells, schema=schema_of(cells))
    return aligned(table, in_order(table.column_names))


def _cells(name: str, column: pd.Series[Any]) -> list[object]:
    values = [_value(value) for value in column.tolist()]
    if name not in BY_NAME:
        return [None if value is None else one_line(str(value)) for value in values]
    kind = BY_NAME[name].kind
    if kind == "int":  # pandas makes floats of whole numbers beside empty cells
        values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    if kind == "json":
        return [normal_json(v) if isinstance(v, str) else cell(BY_NAME[name], v) for v in values]
    return [cell(BY_NAME[name], v) for v in values]


def _value(value: object) -> object:
    """None for pandas' several ways to say that a cell is empty."""
    return None if value is None or value is pd.NA or value != value else value  # noqa: PLR0124 (NaN)
