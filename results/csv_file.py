"""Result rows as CSV: the interchange format, the only one that rows are appended to."""

from __future__ import annotations

import csv
import io
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv as pacsv

from results.arrow import map_texts, plain, plain_schema, schema_of
from results.errors import ResultsError
from results.lines import tail
from results.migrate import check_version
from results.schema import NAMES, ROW_ID, SCHEMA_VERSION, names_of
from results.spreadsheet import escape, unescape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

START_BYTES = 1 << 16  # more than a header and a first row take
_BLOCK_BYTES = 1 << 22  # that a thread parses at a time: most files are one block, which holds each text once
_SLICE_ROWS = 1 << 12  # that a thread turns into text at a time


@dataclass(frozen=True)
class Header:
    """A file's columns, in its order, and the schema version that they belong to."""

    names: list[str]
    version: int


def load(path: Path) -> tuple[pa.Table, int]:
    """All rows, with the columns that the file has, and its schema version.

    Raises:
        ResultsError: the file is no result file, or has a broken line, which is named.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        header = parse_header(file.read(START_BYTES), path)
        _refuse_torn(file, header, path)
    return map_texts(_parse(path, header), unescape), header.version


@contextmanager
def writer(file: BinaryIO, names: list[str]) -> Iterator[Callable[[pa.Table], None]]:
    """Write a header now, and rows with each call of what is yielded."""
    file.write(header_line(names))
    with ThreadPoolExecutor() as pool:
        yield lambda table: file.writelines(pool.map(_lines, _slices(map_texts(table, escape))))


def header_line(names: list[str]) -> bytes:
    """A file's first line; what others named their columns is made as safe to open as their texts."""
    return (",".join(_quoted(name) for name in escape(pa.array(names)).to_pylist()) + "\n").encode()


def line(cells: Mapping[str, object], names: list[str]) -> bytes:
    """A row as a line of a file with these columns; what `cells` lacks is empty."""
    texts = {name: value for name, value in cells.items() if isinstance(value, str)}
    safe = escape(pa.array(list(texts.values()), pa.string())).to_pylist()
    row = {**cells, **dict(zip(texts, safe, strict=True))}
    return _lines(pa.Table.from_pylist([row], schema=plain_schema(names)))


def parse_header(start: bytes, path: Path) -> Header:
    """The columns in a result file's first line: all of its schema's in their order, `row_id` last.

    Args:
        start: the file's first `START_BYTES` bytes.
        path: for the message.

    Raises:
        ResultsError: the file is none of ours, of another schema, or of a newer version of it.
    """
    first_line, _, rest = start.partition(b"\n")
    names = unescape(pa.array(_cells(first_line), pa.string())).to_pylist()
    if "schema_version" not in names:
        for sign, what in ((b";", "semicolons"), (b"\t", "tabs")):
            if b"schema_version" in first_line.split(sign):
                raise ResultsError(f"{path}: its cells are separated by {what}; save it anew, separated by commas")
        raise ResultsError(f"{path}: not a tokenroof result file (no schema_version); name another")
    if len(set(names)) < len(names):
        raise ResultsError(f"{path}: two columns have the same name; name another file, or mend it")
    version = _version(names, dict(zip(names, _cells(rest.partition(b"\n")[0]), strict=False)))
    check_version(version, path)
    ours = names_of(version)
    known = [name for name in names if name in ours]
    if known != list(ours) or names[-1] != ours[-1]:
        pairs = zip_longest(ours, known)
        column = next((our or their for our, their in pairs if our != their), ours[-1])
        raise ResultsError(f"{path}: its columns differ from schema {version}, first at {column}; name another file")
    return Header(names, version)


def is_whole(line: bytes, width: int) -> bool:
    """Whether a line without its newline is a complete row: `width` cells, the last an uncut row_id."""
    cells = _cells(line)
    return len(cells) == width and ROW_ID.fullmatch(cells[-1]) is not None


def _version(names: list[str], row: dict[str, str]) -> int:
    """As the first row says; a file without rows is known by its columns."""
    said = row.get("schema_version", "")
    if said.isascii() and said.isdecimal():
        return int(said)
    fitting = (v for v in range(1, SCHEMA_VERSION) if [n for n in names if n in NAMES] == list(names_of(v)))
    return next(fitting, SCHEMA_VERSION)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if re.search(r'[",\s]', name) else name


def _cells(line: bytes) -> list[str]:
    try:
        # strict: an open quote at the end is an error, so a torn text cell is not taken for a whole one
        return next(csv.reader([line.decode("utf-8-sig", "replace")], strict=True), [])
    except csv.Error:
        return []


def _refuse_torn(file: BinaryIO, header: Header, path: Path) -> None:
    last = tail(file)
    if last and not is_whole(last, len(header.names)):
        raise ResultsError(
            f"{path}: the last line was cut short (its writer was killed); "
            f"delete it, or let `tokenroof run --resume -o {path}` do it"
        )


def _parse(path: Path, header: Header) -> pa.Table:
    schema = schema_of(header.names, header.version)
    convert = pacsv.ConvertOptions(column_types=schema, strings_can_be_null=True, null_values=[""])
    fault = ""
    for threads in (True, False):  # only the slow reader, with one thread, knows a broken line's number
        reading = pacsv.ReadOptions(
            use_threads=threads, block_size=_BLOCK_BYTES, column_names=header.names, skip_rows=1
        )
        try:
            return pacsv.read_csv(path, reading, convert_options=convert)
        except pa.ArrowInvalid as error:
            fault = str(error)
    raise ResultsError(f"{path}: {_explain(fault, header.names)}")


def _explain(fault: str, names: list[str]) -> str:
    """Arrow's message in one line, with the column's name for its number."""
    found = re.match(r"(?:In CSV column #(\d+)|CSV parse error): Row #(\d+): (.*)", fault)
    if not found:
        return fault.partition("\n")[0]
    column, line, what = found.groups()
    where = f"line {line}" if column is None else f"line {line}, column {names[int(column)]}"
    return f"{where}: {what[:80]}"


def _lines(table: pa.Table) -> bytes:
    lines = io.BytesIO()
    pacsv.write_csv(plain(table), lines, pacsv.WriteOptions(include_header=False))
    return lines.getvalue()


def _slices(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, _SLICE_ROWS) for start in range(0, len(table), _SLICE_ROWS)]
