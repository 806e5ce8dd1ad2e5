"""The columns of a result row, declared once for writing, reading, validation, import and documentation."""

from results.schema.column import Column, Kind
from results.schema.columns import BY_NAME, CASE, COLUMNS, NAMES, SCHEMA_VERSION, column_of, names_of
from results.schema.provenance import ALWAYS, FOREIGN, IMPORTED, MEASURED, PROVENANCES, PUBLISHED
from results.schema.verification import PROBE_PLACES, ROW_ID

__all__ = [
    "ALWAYS",
    "BY_NAME",
    "CASE",
    "COLUMNS",
    "FOREIGN",
    "IMPORTED",
    "MEASURED",
    "NAMES",
    "PROBE_PLACES",
    "PROVENANCES",
    "PUBLISHED",
    "ROW_ID",
    "SCHEMA_VERSION",
    "Column",
    "Kind",
    "column_of",
    "names_of",
]
