"""All columns, in their order, and how to look them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.schema import ceiling, measured, run, verification, work

if TYPE_CHECKING:
    from results.schema.column import Column

SCHEMA_VERSION = 4

COLUMNS: tuple[Column, ...] = (
    *run.RUN_COLUMNS,
    *run.MACHINE_COLUMNS,
    *work.ENGINE_COLUMNS,
    *work.MODEL_COLUMNS,
    *work.WORKLOAD_COLUMNS,
    *run.OUTCOME_COLUMNS,
    *measured.MEASURED_COLUMNS,
    *ceiling.CEILING_COLUMNS,
    *measured.CONDITIONS_COLUMNS,
    *verification.VERIFICATION_COLUMNS,
)

CASE = ["n_depth", "n_prompt", "n_gen", "batch", "kv_cache", "prompt_file"]
"""What a repetition was asked to do; rates are averaged and compared only where all of it is equal."""

NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
BY_NAME: dict[str, Column] = {column.name: column for column in COLUMNS}


def column_of(name: str, version: int = SCHEMA_VERSION) -> Column | None:
    """The column of this name in a version of the schema; None where it has none, so that a file's is its own."""
    column = BY_NAME.get(name)
    return column if column is not None and column.since <= version else None


def names_of(version: int) -> tuple[str, ...]:
    """The columns of an older version of the schema, in their order."""
    return tuple(column.name for column in COLUMNS if column.since <= version)
