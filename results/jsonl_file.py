"""Result rows as JSON lines: one object a row, JSON columns nested, empty cells left out."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from results.arrow import schema_of
from results.cells import cell, compact_json
from results.errors import ResultsError
from results.migrate import check_version
from results.safe_text import one_line
from results.schema import SCHEMA_VERSION, column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO


def load(path: Path) -> tuple[pa.Table, int]:
    """All rows, with every column that one of them has, and their schema version.

    Raises:
        ResultsError: the file has a broken line, which is named.
        OSError: it cannot be read.
    """
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                rows.append(_row(line))
            except (ValueError, TypeError, RecursionError) as error:
                raise ResultsError(f"{path}: line {number}: {' '.join(str(error).split())[:120]}") from error
            if number == 1:
                check_version(_version(rows[0]), path)
    names = dict.fromkeys(name for row in rows for name in row) or {"schema_version": None}
    version = _version(rows[0]) if rows else SCHEMA_VERSION
    return pa.Table.from_pylist(rows, schema=schema_of(names, version)), version


@contextmanager
def writer(file: BinaryIO, names: list[str]) -> Iterator[Callable[[pa.Table], None]]:  # noqa: ARG001 (every row names its own)
    """Write rows with each call of what is yielded."""
    yield lambda table: file.writelines(_line(row) for row in table.to_pylist())


def _row(line: bytes) -> dict[str, object]:
    row = json.loads(line, parse_constant=_no_constant)
    if not isinstance(row, dict) or not isinstance(row.get("schema_version"), int):
        raise TypeError("not a tokenroof result row (no schema_version)")
    return {one_line(name): _value(name, value, row["schema_version"]) for name, value in row.items()}


def _value(name: str, value: object, version: int) -> object:
    column = column_of(name, version)
    if column is None:
        if value is None or isinstance(value, str):
            return value and one_line(value)
        return compact_json(value)
    value = cell(column, value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name}: {value} is too large")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _version(row: dict[str, object]) -> int:
    return int(str(row["schema_version"]))


def _line(row: dict[str, object]) -> bytes:
    filled = {name: _nested(name, value) for name, value in row.items() if value is not None}
    return (json.dumps(filled, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def _nested(name: str, value: object) -> object:
    column = column_of(name)
    return json.loads(str(value)) if column and column.kind == "json" else value
