"""`llama-bench -o csv`: a header with the fields of its version, then one line a test with the repetitions' mean."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from results.amounts import counted
from results.importers.llama_bench import NEEDED, TOOL, add_test
from results.importers.rows import Imported
from results.importers.source import Cells, Format

if TYPE_CHECKING:
    from results.importers.source import Source


def _recognises(source: Source) -> bool:
    return any(_is_header(line) for _, line in source.lines())


def _is_header(line: str) -> bool:
    names = _names(line)
    return set(names) >= NEEDED and all(map(str.isidentifier, names))


def _names(line: str) -> list[str]:
    return [name.strip().strip('"') for name in line.split(",")]


def _read(source: Source) -> Imported:
    out = Imported(source, TOOL)
    header: list[str] = []
    for number, line in source.lines():
        if _is_header(line):
            if header:  # files put one after the other
                out.next_run()
            header = _names(line)
            continue
        cells = _cells(line)
        if len(cells) < max(2, len(header) / 2):  # a log
            continue
        if len(cells) != len(header):
            raise source.error(number, f"{counted(len(cells), 'cell')} under a header of {len(header)}")
        add_test(out, Cells(dict(zip(header, cells, strict=True)), source, number))
    return out


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return line.split(",")


FORMAT = Format("llama-bench CSV", _recognises, _read)
