"""`tokenroof report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.errors import UserError

if TYPE_CHECKING:
    from reports.gather import Gathered


def report(
    files: Annotated[list[Path], typer.Argument(help="Result files: .csv, .jsonl or .parquet.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            help="Folder to write to; with --figure a .svg or .png. Default: report.",
        ),
    ] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", metavar="NAME", help="This one figure only: ceiling, roofline, depth, …")
    ] = None,
    format: Annotated[  # noqa: A002
        Literal["html", "md"] | None, typer.Option("--format", help="One of them. Default: both.", show_default=False)
    ] = None,
    lang: Annotated[Literal["en", "ja"], typer.Option("--lang", help="Language of the report.")] = "en",
    with_published: Annotated[
        bool, typer.Option("--with-published", help="Lay published rates of known machines under the roofline.")
    ] = False,
) -> int:
    """Make a page of results: HTML, Markdown and figures.

    It shows how close every machine comes to its ceiling.

    Exits with 1 where nothing was measured; the page then says why.
    """
    _require_libraries()
    from reports.gather import gather

    gathered = gather(files)
    if with_published:
        gathered = _add_published(gathered)
    if figure is not None:
        return _write_figure(gathered, figure, output or Path(f"{figure}.svg"), lang)

    from reports.report import write_report

    folder = output or Path("report")
    try:
        written = write_report(gathered, folder, (format,) if format else ("html", "md"), lang)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}; name another folder with -o") from error
    print(*written, sep="\n")
    return 0 if (gathered.own["status"] == "ok").any() else 1


def _require_libraries() -> None:
    """What a report needs beyond a run."""
    from importlib.util import find_spec

    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise UserError(f"a report needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def _add_published(gathered: Gathered) -> Gathered:
    from harness.ceilings.imported import complete_published
    from reports.gather import with_published
    from results.importers.published import published_rows

    return with_published(gathered, complete_published(published_rows()))


def _write_figure(gathered: Gathered, figure: str, output: Path, lang: str) -> int:
    from reports.figures import FIGURES, Missing, to_png, to_svg
    from reports.files import replace_file
    from reports.report import draw
    from reports.words import words

    if figure not in FIGURES:
        raise UserError(f"--figure {figure}: is none of {', '.join(FIGURES)}")
    if output.suffix.lower() not in {".svg", ".png"}:
        raise UserError(f"-o {output}: a figure is written as .svg or .png")
    drawn = draw(figure, gathered, words(lang))
    if isinstance(drawn, Missing):
        raise UserError(f"no figure {figure}: {drawn.reason}")
    try:
        replace_file(output, to_svg(drawn) if output.suffix.lower() == ".svg" else to_png(drawn))
    except OSError as error:
        raise UserError(f"{output}: {error.strerror or error}; name another file with -o") from error
    print(output)
    return 0
