"""`llama-bench -o sql`: one INSERT a test, every value quoted, with the repetitions' mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from results.amounts import counted
from results.importers.llama_bench import NEEDED, TOOL, add_test
from results.importers.rows import Imported
from results.importers.source import Cells, Format

if TYPE_CHECKING:
    from results.importers.source import Source

# llama-bench does not escape quotes, so what stands between values tells them apart. The table's name has changed.
_INSERT = re.compile(r"INSERT INTO (?:llama_bench|test) \(([^()]*)\) VALUES \('(.*)'\);")
_CREATE = re.compile(r"CREATE TABLE IF NOT EXISTS (?:llama_bench|test) \(")


def _recognises(source: Source) -> bool:
    return any(set(match[1].split(", ")) >= NEEDED for match in _INSERT.finditer(source.text))


def _read(source: Source) -> Imported:
    out = Imported(source, TOOL)
    for number, line in source.lines():
        if _CREATE.search(line) and out.rows:
            out.next_run()
        if not (match := _INSERT.search(line)):
            continue
        fields, values = match[1].split(", "), match[2].split("', '")
        if len(fields) != len(values):
            raise source.error(number, f"{counted(len(values), 'value')} for {counted(len(fields), 'field')}")
        add_test(out, Cells(dict(zip(fields, values, strict=True)), source, number))
    return out


FORMAT = Format("llama-bench SQL", _recognises, _read)
