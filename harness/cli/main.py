"""`tokenroof`: the commands, and one line for a person when something is wrong."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from importlib import metadata
from typing import Annotated

import typer

from harness.cli.compare import compare
from harness.cli.devices import devices
from harness.cli.export import export
from harness.cli.import_ import import_
from harness.cli.inspect import inspect
from harness.cli.kv_cache import kv_cache
from harness.cli.machine import machine
from harness.cli.merge import merge
from harness.cli.models import models
from harness.cli.offload import offload
from harness.cli.predict import predict
from harness.cli.report import report
from harness.cli.run import run
from harness.cli.schema import schema
from harness.cli.sections import Sections
from harness.cli.serve_tier import serve_tier
from harness.cli.show import show
from harness.errors import TokenroofError

app = typer.Typer(
    name="tokenroof",
    help="How fast does this machine decode? The same work through PyTorch, MLX and llama.cpp, one CSV row each time.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """What precedes a command."""
    if version:
        print("tokenroof", metadata.version("tokenroof"))
        raise typer.Exit


app.command(cls=Sections)(run)
app.command()(kv_cache)
app.command()(offload)
app.command()(models)
app.command()(inspect)
app.command()(predict)
app.command()(devices)
app.command()(machine)
app.command()(merge)
app.command()(schema)
app.command("import")(import_)
app.command()(export)
app.command()(compare)
app.command()(report)
app.command()(show)
app.command("serve-tier")(serve_tier)

# -ngl and its like are whole words; -n128 or -ngl99 glued together would otherwise be read as -n with a strange value.
_WORDS = {"-ngl", "-ncmoe", "-nkvo", "-sm", "-ts", "-fa", "-ctk", "-ctv", "-ub"}
_GLUED = re.compile(r"-(?P<flag>[A-Za-z]+)(?P<value>.*)")

# What a disk may do at any time, whatever was checked before; and what to do.
_OTHER_PLACE = "TOKENROOF_CACHE and -o name other places"
_OF_A_DISK = {
    errno.ENOSPC: f"`tokenroof models --clean` frees older models; {_OTHER_PLACE}",
    errno.EDQUOT: f"`tokenroof models --clean` frees older models; {_OTHER_PLACE}",
    errno.EROFS: _OTHER_PLACE,
    errno.EACCES: _OTHER_PLACE,
    errno.EPERM: _OTHER_PLACE,
    errno.EEXIST: _OTHER_PLACE,
    errno.ENOTDIR: _OTHER_PLACE,
}


def main() -> None:
    """Entry point of the `tokenroof` command.

    Exit codes: 0, 1 where some cases failed, 2 for a mistake in the request, 130 after Ctrl-C.
    """
    arguments = sys.argv[1:] or ["--help"]
    _prepare_streams()
    signal.signal(signal.SIGTERM, _interrupt)  # ends as Ctrl-C does: workers stopped, a word on how to go on
    try:
        _refuse_glued(arguments)
        code = app(arguments, standalone_mode=False)
    except typer.TyperException as error:
        code = _complain(error.format_message())
    except TokenroofError as error:
        code = _complain(str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:  # whoever read the output has seen enough; the rows are in the file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        if error.errno not in _OF_A_DISK:
            raise
        code = _complain(f"{error.filename or 'a file'}: {os.strerror(error.errno)}; {_OF_A_DISK[error.errno]}")
    sys.exit(code)


def _prepare_streams() -> None:
    """A closed standard stream is an empty one, and a console that lacks a character gets a question mark."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        getattr(sys, name).reconfigure(errors="replace")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


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
