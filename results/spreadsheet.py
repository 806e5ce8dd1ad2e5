"""Text cells that a spreadsheet opens without taking them for formulas."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


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
