"""Rows of an older schema version as rows of this one: one step a version."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pyarrow as pa

from results.arrow import TEXT, aligned, in_order
from results.errors import ResultsError
from results.schema import COLUMNS, MEASURED, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def check_version(version: int, path: Path) -> None:
    """Refuse a file that only a newer tokenroof can understand.

    Raises:
        ResultsError: it is of a version that this tokenroof does not know.
    """
    if version > SCHEMA_VERSION:
        raise ResultsError(
            f"{path}: of schema {version}, this tokenroof knows up to {SCHEMA_VERSION}; update tokenroof"
        )
    if version < 1:
        raise ResultsError(f"{path}: schema_version {version} does not exist; the first was 1")


def migration(paths: Sequence[Path]) -> str:
    """The command that writes files of one older version as a file of this one."""
    return shlex.join(
        ["tokenroof", "merge", *map(str, paths), "-o", f"{paths[0].with_suffix('')}-v{SCHEMA_VERSION}.csv"]
    )


def migrate(table: pa.Table, version: int) -> pa.Table:
    """A table of schema `version`, from 1 to the current one, as one of the current one.

    A column that the file had for itself, and whose name a later version took, is kept as `<name>_v<version>`.
    """
    for step in range(version, SCHEMA_VERSION):
        fresh = {column.name for column in COLUMNS if column.since == step + 1}
        table = table.rename_columns([f"{n}_v{step}" if n in fresh else n for n in table.column_names])
        table = _STEPS[step](table)
    table = aligned(table, in_order(table.column_names))
    if version == SCHEMA_VERSION:
        return table
    versions = pa.array([SCHEMA_VERSION] * table.num_rows, pa.int64())
    return table.set_column(0, table.schema.field(0), versions)


def _from_1(table: pa.Table) -> pa.Table:
    """Version 1 knew only rows that tokenroof had measured."""
    provenance = pa.DictionaryArray.from_arrays(pa.array([0] * table.num_rows, pa.int32()), [MEASURED])
    return table.append_column(pa.field("provenance", TEXT), provenance)


def _from_2(table: pa.Table) -> pa.Table:
    """Version 2 knew only rows that were measured with a KV cache."""
    on = pa.DictionaryArray.from_arrays(pa.array([0] * table.num_rows, pa.int32()), ["on"])
    return table.append_column(pa.field("kv_cache", TEXT), on)


def _from_3(table: pa.Table) -> pa.Table:
    """Version 4 only adds columns that may be empty."""
    return table


_STEPS: dict[int, Callable[[pa.Table], pa.Table]] = {1: _from_1, 2: _from_2, 3: _from_3}
