"""`llama-bench -o json` and `-o jsonl`: one object a test, with the time of each repetition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.importers.llama_bench import NEEDED, TOOL, add_test
from results.importers.rows import Imported
from results.importers.source import Cells, Format

if TYPE_CHECKING:
    from results.importers.source import Source


def _recognises(source: Source) -> bool:
    return any(value is not None and value.keys() >= NEEDED for _, value in source.json_objects)


def _read(source: Source) -> Imported:
    out = Imported(source, TOOL)
    for line, value in source.json_objects:
        if value is None:
            out.leave_out(line, "a JSON object that is broken or cut short")
        elif value.keys() >= NEEDED:
            add_test(out, Cells(value, source, line))
    return out


FORMAT = Format("llama-bench JSON", _recognises, _read)
