"""Result rows as Parquet: small, typed, quick to read; JSON columns stay text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from results.arrow import schema_of
from results.errors import ResultsError
from results.migrate import check_version
from results.schema import SCHEMA_VERSION, names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO


def load(path: Path) -> tuple[pa.Table, int]:
    """All rows, with the columns that the file has, and its schema version.

    Raises:
        ResultsError: the file is no result file, or a column is missing or of another type.
        OSError: it cannot be read.
    """
    try:
        table = parquet.ParquetFile(path).read()
    except pa.ArrowException as error:
        raise ResultsError(f"{path}: not a Parquet file ({str(error).partition(chr(10))[0][:80]})") from error
    if "schema_version" not in table.column_names:
        raise ResultsError(f"{path}: not a tokenroof result file (no schema_version); name another")
    first = table["schema_version"][0].as_py() if table.num_rows else SCHEMA_VERSION
    version = first if isinstance(first, int) else SCHEMA_VERSION
    check_version(version, path)
    missing = [name for name in names_of(version) if name not in table.column_names]
    if missing:
        raise ResultsError(
            f"{path}: its columns differ from schema {version}, first at {missing[0]}; name another file"
        )
    columns = [_cast(table[field.name], field, path) for field in schema_of(table.column_names, version)]
    return pa.table(columns, names=table.column_names), version


@contextmanager
def writer(file: BinaryIO, names: list[str]) -> Iterator[Callable[[pa.Table], None]]:
    """Write rows with each call of what is yielded."""
    with parquet.ParquetWriter(file, schema_of(names), compression="zstd") as opened:
        yield opened.write_table


def _cast(column: pa.ChunkedArray, field: pa.Field, path: Path) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        what = str(error).partition("\n")[0][:80]
        raise ResultsError(f"{path}: column {field.name}: {what}") from error
