"""The append-only result file: one header, one row a repetition, each on disk before the next is measured."""

from __future__ import annotations

import io
import json
import math
import re
from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv as pacsv

from results import lines
from results.errors import ResultsError
from results.read import START_BYTES, is_whole, parse_header
from results.schema import ARROW_SCHEMA, COLUMNS, NAMES, Column, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import FileIO
    from types import UnionType

HEADER = (",".join(NAMES) + "\n").encode()

_TYPES: dict[Kind, type | UnionType] = {"text": str, "int": Integral, "float": Real, "json": dict | list}
# A row must stay one line, whatever an engine or the system put into a message.
_BREAKING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


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
            raise ResultsError(f"{self.path}: results are written as CSV; choose an output that ends in .csv")
        with self._open():
            pass

    def append(self, row: Mapping[str, object]) -> None:
        """Write one row and force it to disk.

        Args:
            row: cells by column name; what is absent or None is empty, and so is a float that is not finite.
                JSON columns take a dict or a list. Line breaks in text become spaces.

        Raises:
            ResultsError: it could not be written; earlier rows are intact.
            ValueError, TypeError: a fault of the caller: an unknown column, an empty required cell, a wrong
                type.
        """
        with self._open() as (file, header):
            lines.append(file, _line(row, header))

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
            lines.mend(file, partial(is_whole, width=len(header)))
            yield file, header


def _line(row: Mapping[str, object], header: list[str]) -> bytes:
    unknown = row.keys() - set(NAMES)
    if unknown:
        raise ValueError(f"no such column: {', '.join(sorted(unknown))}")
    cells = {column.name: _cell(column, row.get(column.name)) for column in COLUMNS}
    fields = [ARROW_SCHEMA.field(name) if name in NAMES else pa.field(name, pa.string()) for name in header]
    table = pa.Table.from_pylist([cells], schema=pa.schema(fields))
    line = io.BytesIO()
    pacsv.write_csv(table, line, pacsv.WriteOptions(include_header=False))
    return line.getvalue()


def one_line(text: str) -> str:
    """Text as a cell holds it: line breaks and control characters become spaces.

    So do lone surrogates, which stand for what the system could not decode in a file's name, and which UTF-8 lacks.
    """
    return _BREAKING.sub(" ", text).encode(errors="replace").decode()


def _cell(column: Column, value: object) -> object:
    if value is not None and (isinstance(value, bool) or not isinstance(value, _TYPES[column.kind])):
        raise TypeError(f"{column.name}: {column.kind} expected, not {value!r}")
    if isinstance(value, str):
        value = one_line(value) or None
    elif isinstance(value, Integral):
        value = int(value) if column.kind == "int" else float(value)
    elif isinstance(value, Real):
        value = _finite(float(value))
    elif value is not None:
        value = json.dumps(_finite(value), sort_keys=True, separators=(",", ":"))
    if value is None and column.required:
        raise ValueError(f"{column.name}: never empty")
    return value


def _finite(value: object) -> object:
    """The same value with None for each number that is not finite: neither CSV nor JSON can say it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
