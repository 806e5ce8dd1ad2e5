"""Other tools' results as rows of ours: one module a format, recognised by what the text holds.

An importer keeps what its source says. Cells that a source does not fill stay empty, and `unavailable` says so; what
follows from it less directly is named in `derived`. A rate of another definition is corrected, or left out with a note.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from results.errors import ResultsError
from results.importers import (
    llama_batched_bench,
    llama_bench_csv,
    llama_bench_json,
    llama_bench_md,
    llama_bench_sql,
    llama_benchy,
    mlx_lm_benchmark,
    mlx_lm_generate,
)
from results.importers.rows import Imported
from results.importers.source import Source

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FORMATS", "Imported", "import_file", "import_text"]

FORMATS = (
    llama_bench_json.FORMAT,
    llama_bench_csv.FORMAT,
    llama_bench_sql.FORMAT,
    llama_bench_md.FORMAT,
    llama_benchy.FORMAT,
    llama_batched_bench.FORMAT,
    mlx_lm_benchmark.FORMAT,
    mlx_lm_generate.FORMAT,
)
"""Tried in this order; a text of several formats is read as the first."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def import_file(path: Path) -> Imported:
    """The rows of a file of another tool.

    Raises:
        ResultsError: it cannot be read, or is of no known format; or a value in it means nothing, whose line is named.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror or error}") from error
    encoding = "utf-16" if data.startswith(_UTF_16) else "utf-8-sig"  # PowerShell redirects into UTF-16
    return import_text(data.decode(encoding, "replace"), str(path))


def import_text(text: str, name: str) -> Imported:
    """The rows of a text of another tool.

    Args:
        text: as it was printed, with whatever was printed around it.
        name: for messages.

    Raises:
        ResultsError: it is of no known format, or a value in it means nothing, whose line is named.
    """
    source = Source.of(name, text)
    for known in FORMATS:
        if known.recognises(source):
            return known.read(source)
    names = ", ".join(known.name for known in FORMATS)
    raise ResultsError(f"{name}: of no format known here; known are {names}")
