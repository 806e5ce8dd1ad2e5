"""Text from outside, made safe to keep in a row, to share and to open in a spreadsheet."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

# A row must stay one line, whatever an engine or the system put into a message.
_BREAKING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HOME = re.compile(r"(?:/home|/Users|/var/home|[A-Za-z]:[\\/]+Users)[\\/]+[^\\/\s\"']+|/root\b")


def one_line(text: str) -> str:
    """Text as a cell holds it: line breaks and control characters become spaces.

    So do lone surrogates, which stand for what the system could not decode in a file's name, and which UTF-8 lacks.
    """
    return _BREAKING.sub(" ", text).encode(errors="replace").decode()


def without_home(text: str) -> str:
    """Text in which no path begins with somebody's home directory, and so with their name: `~` stands for it."""
    home = str(Path.home())
    if len(home) > 1:  # a service's home may be the root directory
        text = text.replace(home, "~")
    return _HOME.sub("~", text)


def escape(texts: pa.Array) -> pa.Array:
    """Text cells as a CSV holds them: a spreadsheet takes none for a formula.

    A cell that begins with one of `= + - @`, tab or carriage return gets an apostrophe before it, which spreadsheets
    take for "this is text" (OWASP, CSV Injection). So does one that begins with apostrophes before such a sign, so
    that `unescape` always gives back the original.
    """
    return pc.replace_substring_regex(texts, r"^('*[=+\-@\t\r])", r"'\1")


def unescape(texts: pa.Array) -> pa.Array:
    """Text cells without the apostrophe that `escape` put before them."""
    if not pc.any(pc.starts_with(texts, "'")).as_py():  # as good as always, and much cheaper to ask
        return texts
    return pc.replace_substring_regex(texts, r"^'('*[=+\-@\t\r])", r"\1")
