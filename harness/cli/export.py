"""`tokenroof export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def export(
    file: Annotated[Path, typer.Argument(help="A result file.")],
    format: Annotated[Literal["llama-bench-md"], typer.Option("--format", help="Of the text on standard output.")],  # noqa: A002
) -> int:
    """Print rows as llama-bench's table.

    It is there to be pasted into an issue.
    """
    from harness.errors import UserError
    from results.exporters.llama_bench_md import llama_bench_md
    from results.read import read

    del format  # there is one
    if not (text := llama_bench_md(read(file))):
        raise UserError(f"{file}: no measured rate of one sequence, which is what llama-bench's table holds")
    print(text)
    return 0
