"""Flags that several commands share, so that they read and mean the same everywhere."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import UserError

# Groups of the help of `tokenroof run`.
ENGINES = "Engines and their settings"
RESULT = "The result"

OneModel = Annotated[
    str, typer.Option("-m", "--model", metavar="MODEL", help="Preset, Hugging Face directory or .gguf file.")
]
OneWeightFormat = Annotated[
    str | None,
    typer.Option("-w", "--weights", metavar="FORMAT", help="Weight format. Default: bf16; of a .gguf file its own."),
]
OneThreadCount = Annotated[
    int | None, typer.Option("-t", "--threads", metavar="N", min=1, help="CPU threads. Default: the physical cores.")
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="auto, cpu, gpu, or an engine's own name such as cuda:1.",
        rich_help_panel=ENGINES,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="CSV to append to. Default: named after the machine.",
        rich_help_panel=RESULT,
    ),
]
Machine = Annotated[
    str | None,
    typer.Option("--machine", metavar="LABEL", help="The machine's name in the rows.", rich_help_panel=RESULT),
]


def refuse_given(context: typer.Context, why: str, but_for: Collection[str]) -> None:
    """Refuse the flags that were given, even with the values that they have by default, where they say nothing.

    Args:
        context: of the command.
        why: they do not, as the beginning of a sentence.
        but_for: parameters that are allowed.

    Raises:
        UserError: one was given; the message names them all.
    """
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name and parameter.name not in but_for and _is_given(context, parameter.name)
    ]
    if given:
        raise UserError(f"{why}, to which {', '.join(given)} cannot be added; leave one or the other out")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
