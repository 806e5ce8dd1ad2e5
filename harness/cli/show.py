"""`tokenroof show`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def show(
    files: Annotated[list[Path], typer.Argument(help="Result files: .csv, .jsonl or .parquet.")],
    lang: Annotated[Literal["en", "ja"], typer.Option("--lang", help="Language of the text.")] = "en",
) -> int:
    """Print decode rates as bars.

    A mark shows where the ceiling of each is.

    Exits with 1 where nothing was measured.
    """
    from reports.gather import gather
    from reports.show import BLOCKS
    from reports.show import show as bars
    from reports.words import words

    gathered = gather(files)
    width = shutil.get_terminal_size((100, 24)).columns
    print(bars(gathered, words(lang), width=width, blocks=_can_print(BLOCKS)))
    return 0 if (gathered.own["status"] == "ok").any() else 1


def _can_print(characters: str) -> bool:
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
