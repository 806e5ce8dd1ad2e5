"""The help of a command with many flags."""

import re
from collections.abc import Callable
from typing import Any

import typer.main

from harness.cli.main import app


def test_every_flag_of_run_stands_under_a_heading_of_its_theme(command: Callable[..., Any]) -> None:
    said = command("run", "--help").stdout
    sections = re.findall(r"(?m)^(\S.*):\n((?:^ .*\n)+)", said)
    assert [heading for heading, _ in sections] == [
        "The model",
        "The work",
        "Engines and their settings",
        "What lies in which memory (llama.cpp)",
        "A server (--backend openai)",
        "How often and how long",
        "The result",
        "Help",
    ]
    under = {flag: heading for heading, text in sections for flag in re.findall(r"(?m)^  (?:-\w+, )?(--[\w-]+)", text)}
    run = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]  # a group
    flags = {next(name for name in option.opts if name.startswith("--")) for option in run.params}
    assert set(under) == {*flags, "--help"}
    assert (under["--artifact"], under["--rpc"], under["--output"]) == (
        "The model", "What lies in which memory (llama.cpp)", "The result",
    )  # fmt: skip
