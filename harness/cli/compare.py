"""`tokenroof compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.cli.choices import Format
from harness.errors import UserError
from results.amounts import counted

if TYPE_CHECKING:
    from results.compare.compare import Comparison
    from results.compare.sides import Side


def compare(
    files: Annotated[list[Path], typer.Argument(metavar="BASE NEW", help="Result files; one will do with --by.")],
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMN", help="Compare a column's values: machine, backend, weight_format, …"),
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="VALUE", help="The value to compare with. Default: the first met.")
    ] = None,
    metric: Annotated[
        Literal["decode_tok_s", "prefill_tok_s", "ttft_s", "ttft_client_s"],
        typer.Option("--metric", help="What to compare; ttft_client_s is a server's."),
    ] = "decode_tok_s",
    min_effect: Annotated[
        float, typer.Option("--min-effect", metavar="PCT", min=0, max=99, help="The least difference worth a verdict.")
    ] = 2,
    fail_below: Annotated[
        float | None,
        typer.Option(
            "--fail-below", metavar="PCT", min=0, max=99, help="Exit with 1 if a case is slower, and by more than this."
        ),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="Of the result on standard output.")] = "table",  # noqa: A002
) -> int:
    """Tell which of two files, engines or settings is faster.

    Equal cases stand side by side, each with a verdict.
    """
    from rich.console import Console

    from reports.comparison import render
    from results.compare.compare import compare as compare_sides

    columns = [name.strip() for name in by.split(",")] if by else []
    sides = _by_column(files, columns, base) if columns else _by_file(files, base)
    result = compare_sides(sides, metric=metric, min_effect=min_effect / 100, by=columns)
    print(render(result, format, Console() if format == "table" and sys.stdout.isatty() else None).rstrip())
    if result.pairs.empty:
        raise UserError(f"no case of {sides[0].name} can be compared: {result.left_out['why'].iloc[0]}")
    return 0 if fail_below is None else _verdict(result, fail_below)


def _verdict(result: Comparison, fail_below_pct: float) -> int:
    from results.compare.verdicts import SLOWER

    lost = (result.pairs["verdict"] == SLOWER) & (result.pairs["ratio"] < 1 - fail_below_pct / 100)
    if lost.any():
        print(
            f"tokenroof: slower by more than {fail_below_pct:g} %: {lost.sum()} of {counted(len(lost), 'case')}",
            file=sys.stderr,
        )
    return int(lost.any())


def _by_file(files: list[Path], base: str | None) -> list[Side]:
    from results.compare.sides import Side
    from results.read import read_valid

    if len(files) != 2:
        raise UserError(f"compare: two files are needed, and there is {len(files)}; or --by COLUMN within them")
    if base is not None:
        raise UserError(f"--base {base}: names a value of --by COLUMN; of two files the first is the base")
    names = [file.name for file in files]
    told = names if len(set(names)) == 2 else map(str, files)
    return [Side(name, read_valid(file)) for name, file in zip(told, files, strict=True)]


def _by_column(files: list[Path], columns: list[str], base: str | None) -> list[Side]:
    import pandas as pd

    from results.compare.sides import sides_by
    from results.read import read_valid

    sides, without = sides_by(pd.concat([read_valid(file) for file in files], ignore_index=True), columns, base)
    if len(without):
        print(f"note: left out: {counted(len(without), 'row')} without {' or '.join(columns)}", file=sys.stderr)
    return sides
