"""How columns lie in memory: as Arrow tables, with text kept once for all rows that repeat it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from results.safe_text import BREAKING
from results.schema import BY_NAME, NAMES, SCHEMA_VERSION, column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"text": TEXT, "json": TEXT, "int": pa.int64(), "float": pa.float64()}


def schema_of(names: Iterable[str], version: int = SCHEMA_VERSION) -> pa.Schema:
    """The types of columns by name; those that this version of the schema does not know are text."""
    columns = [(name, column_of(name, version)) for name in names]
    return pa.schema([(name, _TYPES[column.kind] if column else TEXT) for name, column in columns])


def plain_schema(names: Iterable[str]) -> pa.Schema:
    """The same types with text written out in each row."""
    return pa.schema([(field.name, pa.string() if field.type == TEXT else field.type) for field in schema_of(names)])


def in_order(names: Iterable[str]) -> list[str]:
    """The columns of a file that has these: the schema's, then those it does not know, `row_id` last."""
    extra = [name for name in dict.fromkeys(names) if name not in BY_NAME]
    return [*NAMES[:-1], *extra, NAMES[-1]]


def aligned(table: pa.Table, names: list[str]) -> pa.Table:
    """The table with exactly these columns in this order; those it lacks are empty."""
    if table.column_names == names:
        return table
    had, schema = set(table.column_names), schema_of(names)
    columns = [table[f.name] if f.name in had else pa.nulls(table.num_rows, f.type) for f in schema]
    return pa.table(columns, schema=schema)


def map_texts(table: pa.Table, change: Callable[[pa.Array], pa.Array]) -> pa.Table:
    """The table with each distinct text replaced by what `change` makes of it."""
    columns = [_mapped(column, change) if column.type == TEXT else column for column in table.columns]
    return pa.table(columns, schema=table.schema)


def _mapped(column: pa.ChunkedArray, change: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    chunks = [pa.DictionaryArray.from_arrays(chunk.indices, change(chunk.dictionary)) for chunk in column.chunks]
    return pa.chunked_array(chunks, TEXT)


def on_one_line(table: pa.Table) -> pa.Table:
    """The table as `results.safe_text.one_line` makes its texts, which somebody else may have written."""
    texts = [chunk.dictionary for column in table.columns if column.type == TEXT for chunk in column.chunks]
    if not pc.any(pc.match_substring_regex(pa.chunked_array(texts, pa.string()), BREAKING)).as_py():
        return table
    return map_texts(table, lambda cells: pc.replace_substring_regex(cells, BREAKING, " "))


def plain(table: pa.Table) -> pa.Table:
    """The table with its text written out in each row."""
    columns = [_written_out(column) if column.type == TEXT else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _written_out(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array(
        [chunk.dictionary_decode() for chunk in column.chunks], pa.string()
    )  # a cast takes 9 times as long
