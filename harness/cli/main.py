"""`tokenroof`: the commands, and one line for a person when something is wrong."""

from __future__ import annotations

import re
import sys

import typer

from harness.cli.models import models
from harness.cli.run import run
from harness.errors import TokenroofError

app = typer.Typer(
    name="tokenroof",
    help="How fast does this machine decode? The same work through PyTorch, MLX and llama.cpp, one CSV row each time.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(run)
app.command()(models)

# -ngl and its like are whole words; -n128 or -ngl99 glued together would otherwise be read as -n with a strange value.
_WORDS = {"-ngl", "-fa", "-ctk", "-ctv", "-ub"}
_GLUED = re.compile(r"-(?P<flag>[A-Za-z]+)(?P<value>.*)")


def main() -> None:
    """Entry point of the `tokenroof` command.

    Exit codes: 0, 1 where some cases failed, 2 for a mistake in the request, 130 after Ctrl-C.
    """
    arguments = sys.argv[1:] or ["--help"]
    try:
        _refuse_glued(arguments)
        code = app(arguments, standalone_mode=False)
    except typer.TyperException as error:
        code = _complain(error.format_message())
    except TokenroofError as error:
        code = _complain(str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    sys.exit(code)


def _complain(message: str) -> int:
    print("tokenroof:", " ".join(message.split()), file=sys.stderr)
    return 2


def _refuse_glued(arguments: list[str]) -> None:
    """A single dash takes one letter or one of llama-bench's words, and its value stands apart."""
    for argument in arguments:
        if argument == "--":
            return
        match = _GLUED.fullmatch(argument)
        if match is None or argument in _WORDS or len(argument) == 2:
            continue
        known = [word for word in sorted(_WORDS, key=len, reverse=True) if argument.startswith(word)]
        flag = (known or [argument[:2]])[0]
        value = argument[len(flag) :].lstrip("=")
        advice = f"write {flag} {value}" if re.fullmatch(r"-?\d.*|on|off|auto", value) else "see tokenroof run --help"
        raise TokenroofError(f"no such option: {argument} ({advice})")
