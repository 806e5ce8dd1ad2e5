"""`tokenroof import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import UserError
from results.amounts import counted

if TYPE_CHECKING:
    from results.importers import Imported

_SHOWN = 3  # of what was left out of a file


def import_(
    files: Annotated[list[Path] | None, typer.Argument(help="Output of llama-bench, mlx-lm, llama-benchy, …")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="New file: .csv, .jsonl or .parquet.", show_default=False),
    ] = None,
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="LABEL", help="Label of the machine; default: from its device.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help='Device that ran the model, "RTX 5090".')
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="For output that does not name the model.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Add the published rates of known machines that come with tokenroof.")
    ] = False,
) -> int:
    """Make rows of what other tools measured.

    Files are recognised by what they hold.
    """
    import pandas as pd

    from harness.ceilings.imported import complete, complete_published
    from results.formats import format_of, write
    from results.importers import import_file
    from results.importers.published import published_rows

    files = files or []
    if not files and not published:
        raise UserError("name files to import, or --published")
    if output is None:
        raise UserError("name the file to write: -o results.csv")
    format_of(output)
    if output.exists():
        raise UserError(f"{output}: is there already; write to a new file and `tokenroof merge` them")
    rows = []
    for path in files:
        imported = import_file(path)
        rows += complete(imported.rows, str(path), machine=machine, device=device, model=model)
        _tell(path, imported)
    if published:
        rows += complete_published(published_rows())
    if not rows:
        raise UserError("nothing to write: no file holds a prefill or decode rate")
    write(pd.DataFrame(rows, dtype=object), output)
    print(f"{counted(len(rows), 'row')} in {output}")
    return 0


def _tell(path: Path, imported: Imported) -> None:
    print(f"{path}: {counted(len(imported.rows), 'row')} of {imported.tool}")
    for left_out in imported.left_out[:_SHOWN]:
        print(f"  left out, {left_out}")
    if len(imported.left_out) > _SHOWN:
        print(f"  left out, {len(imported.left_out) - _SHOWN} more")
