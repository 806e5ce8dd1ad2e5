"""`tokenroof merge`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from results.amounts import counted

if TYPE_CHECKING:
    from results.merge import Merged


def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Result files: .csv, .jsonl, .parquet.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The new file, in the format that its name ends in.")
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse broken files and conflicts: leave out and mark nothing.")
    ] = False,
    suffix: Annotated[
        bool, typer.Option("--suffix", help="Machines that share a label are called LABEL, LABEL-2, and so on.")
    ] = False,
) -> int:
    """Put result files together.

    Exact duplicates are dropped, `verified` is filled in, and older schema versions are migrated.

    Rows that call different things the same are kept, with comparable=no and the reason: one machine label on two
    machines, one case with two token streams, one model name with two architectures or with probes that differ.

    A broken file is left out; the exit code is then 1. The files of samples stay beside the files that they belong to.
    """
    from results.merge import merge as merge_files

    merged = merge_files(files, output, strict=strict, suffix=suffix)
    for fault in merged.left_out:
        print("left out:", fault, file=sys.stderr)
    for conflict in merged.conflicts:
        print("not comparable:", conflict, file=sys.stderr)
    for label, names in merged.renamed.items():
        print(f"{len(names)} machines were called {label}; now {', '.join(names)}", file=sys.stderr)
    print("\n".join(_summary(merged, len(files), output)))
    return 1 if merged.left_out else 0


def _summary(merged: Merged, n_files: int, output: Path) -> list[str]:
    yes, no = merged.verdicts["yes"], merged.verdicts["no"]
    n_read, n_same = n_files - len(merged.left_out), merged.n_rows - merged.n_kept
    left_out = f", {len(merged.left_out)} left out" if merged.left_out else ""
    return [
        f"{counted(merged.n_rows, 'row')} read from {n_read} of {counted(n_files, 'file')}{left_out}",
        f"{counted(merged.n_kept, 'row')} in {output}, {counted(n_same, 'exact duplicate')} dropped, "
        f"{merged.n_marked} marked comparable=no",
        f"verified: {yes} yes, {no} no, {merged.n_kept - yes - no} without a verdict",
    ]
