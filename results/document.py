"""The schema as a page for people: Markdown, one table a group."""

from __future__ import annotations

from itertools import groupby

from results.schema import ALWAYS, COLUMNS, SCHEMA_VERSION, Column

_HEAD = f"""# Columns of a result row

Schema version {SCHEMA_VERSION}; this page is what `tokenroof schema` prints. One row a repetition. Bytes are whole
numbers; times are UTC, ISO 8601. An empty cell is unknown, and `unavailable` says why. *Filled in* names the rows in
which a cell is never empty.

Files are CSV (UTF-8, one header), JSON lines or Parquet, by their ending. In a CSV, text that a spreadsheet could take
for a formula has an apostrophe before it, which reading takes off. Columns beyond these are kept, as text.

Every interval and answered token of a measured row lies under its `row_id` in `<output>.samples.parquet`, beside the
file that the row was measured into. `tokenroof merge` leaves those files where they are.
"""


def document() -> str:
    """The page that `docs/columns.md` holds."""
    groups = groupby(COLUMNS, key=lambda column: column.group)
    return "\n".join([_HEAD, *(_table(name, list(columns)) for name, columns in groups)]).rstrip() + "\n"


def _table(name: str, columns: list[Column]) -> str:
    head = [
        f"## {name.capitalize()}",
        "",
        "| column | kind | unit | allowed | filled in | meaning |",
        "|---|" + "---|" * 5,
    ]
    return "\n".join([*head, *map(_line, columns), ""])


def _line(column: Column) -> str:
    filled = "every row" if column.required == ALWAYS else ", ".join(column.required)
    cells = [f"`{column.name}`", column.kind, column.unit, _allowed(column), filled, column.meaning]
    return "| " + " | ".join(cells) + " |"


def _allowed(column: Column) -> str:
    if column.kind == "json":
        return f"JSON {column.document}"
    if column.pattern:
        words = column.pattern.split("|")
        return " or ".join(words) if all(map(str.isalpha, words)) else "`" + column.pattern.replace("|", "\\|") + "`"
    if column.least is None:
        return ""
    return f"from {column.least:,.15g}" + (f" to {column.most:,.15g}" if column.most is not None else "")
