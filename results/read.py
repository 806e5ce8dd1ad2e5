"""Reading a result file: is it one, and what do its rows say."""

from __future__ import annotations

import csv
import re
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
from pyarrow import csv as pacsv

from results.errors import ResultsError
from results.lines import tail
from results.schema import ARROW_SCHEMA, NAMES, ROW_ID, SCHEMA_VERSION

if TYPE_CHECKING:
    from typing import BinaryIO

START_BYTES = 1 << 16  # more than a header and a first row take


def read(path: Path | str) -> pd.DataFrame:
    """All rows of a result CSV.

    Integers are pandas' nullable `Int64`, floats `float64`, everything else text; JSON cells stay text. An
    empty cell is missing (`isna()`). Columns that this version does not know are kept, as text.

    Raises:
        ResultsError: the file cannot be read, is no result file, or has a broken line, which is named.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            header = parse_header(file.read(START_BYTES), path)
            _refuse_torn(file, header, path)
        table = _table(path, header)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror or error}") from error
    rows: pd.DataFrame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return rows


def parse_header(start: bytes, path: Path) -> list[str]:
    """The column names in a result file's first line: all of the schema's in their order, `row_id` last.

    Args:
        start: the file's first `START_BYTES` bytes.
        path: for the message.

    Raises:
        ResultsError: the file is none of ours, of another schema, or of a newer version of it.
    """
    first_line, _, rest = start.partition(b"\n")
    header = _cells(first_line)
    if "schema_version" not in header:
        raise ResultsError(f"{path}: not a tokenroof result file (no schema_version); name another")
    row = dict(zip(header, _cells(rest.partition(b"\n")[0]), strict=False))
    version = row.get("schema_version", "")
    if version.isdecimal() and int(version) > SCHEMA_VERSION:
        raise ResultsError(
            f"{path}: of schema {version}, this tokenroof knows up to {SCHEMA_VERSION}; update tokenroof"
        )
    known = [name for name in header if name in NAMES]
    if known != list(NAMES) or header[-1] != NAMES[-1]:
        pairs = zip_longest(NAMES, known)
        column = next((ours or theirs for ours, theirs in pairs if ours != theirs), NAMES[-1])
        raise ResultsError(
            f"{path}: its columns differ from schema {SCHEMA_VERSION}, first at {column}; name another file"
        )
    return header


def is_whole(line: bytes, width: int) -> bool:
    """Whether a line without its newline is a complete row: `width` cells, the last an uncut row_id."""
    cells = _cells(line)
    return len(cells) == width and ROW_ID.fullmatch(cells[-1]) is not None


def _cells(line: bytes) -> list[str]:
    try:
        # strict: an open quote at the end is an error, so a torn text cell is not taken for a whole one
        return next(csv.reader([line.decode("utf-8-sig", "replace")], strict=True), [])
    except csv.Error:
        return []


def _refuse_torn(file: BinaryIO, header: list[str], path: Path) -> None:
    last = tail(file)
    if last and not is_whole(last, len(header)):
        raise ResultsError(
            f"{path}: the last line was cut short (its writer was killed); "
            f"delete it, or let `tokenroof run --resume -o {path}` do it"
        )


def _table(path: Path, header: list[str]) -> pa.Table:
    types = {name: ARROW_SCHEMA.field(name).type if name in NAMES else pa.string() for name in header}
    convert = pacsv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""])
    fault = ""
    for threads in (True, False):  # only the slow reader, with one thread, knows a broken line's number
        try:
            return pacsv.read_csv(path, pacsv.ReadOptions(use_threads=threads), convert_options=convert)
        except pa.ArrowInvalid as error:
            fault = str(error)
    raise ResultsError(f"{path}: {_explain(fault, header)}")


def _explain(fault: str, header: list[str]) -> str:
    """Arrow's message in one line, with the column's name for its number."""
    found = re.match(r"(?:In CSV column #(\d+)|CSV parse error): Row #(\d+): (.*)", fault)
    if not found:
        return fault.partition("\n")[0]
    column, line, what = found.groups()
    where = f"line {line}" if column is None else f"line {line}, column {header[int(column)]}"
    return f"{where}: {what[:80]}"
