"""Flags that several commands share, so that they read and mean the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

OneModel = Annotated[
    str, typer.Option("-m", "--model", metavar="MODEL", help="Preset, Hugging Face directory or .gguf file.")
]
OneWeightFormat = Annotated[
    str | None, typer.Option("-w", "--weights", metavar="FORMAT", help="Default: bf16; a .gguf as it is.")
]
OneThreadCount = Annotated[
    int | None, typer.Option("-t", "--threads", min=1, help="CPU threads. Default: the physical cores.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, gpu, or an engine's own name such as cuda:1.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="CSV to append to. Default: named after the machine.")
]
Machine = Annotated[str | None, typer.Option("--machine", metavar="LABEL", help="The machine's name in the rows.")]
