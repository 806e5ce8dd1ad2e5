"""Text from another tool: cleaned once, and read cell by cell with errors that name file and line."""

from __future__ import annotations

import functools
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.errors import ResultsError
from results.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from results.importers.rows import Imported

# A terminal's colours, cursor movements and titles.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MOST_TOKENS = 2**31 - 1
_TAG = re.compile(r"</?[A-Za-z!][^<>]*>")
_MOST_BROKEN = 100  # objects; a text with more of them holds something else
_SEPARATORS = re.compile(r"[ ,]*")
_OBJECT = re.compile(r"^[ \t\[,]*(?=\{)", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """One text and where it came from.

    Attributes:
        name: for messages.
        text: with its terminal codes removed, lines ended by newlines.
    """

    name: str
    text: str

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        """From the text as it was found."""
        return cls(name, _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Lines with their numbers, from 1."""
        return enumerate(self.text.split("\n"), start=1)

    @functools.cached_property
    def json_objects(self) -> tuple[tuple[int, dict[str, Any] | None], ...]:
        """JSON objects that begin a line or stand in an array, each with its line; None for one that is broken.

        A log around them, arrays one after the other and an array that was cut short do no harm.
        """
        return tuple(self._json_objects())

    def _json_objects(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        decoder = json.JSONDecoder()
        end, line, counted, broken = 0, 1, 0, 0
        for match in _OBJECT.finditer(self.text):
            if match.end() < end:  # inside the one before
                continue
            if broken == _MOST_BROKEN:
                return
            start = match.end()
            while start < len(self.text) and self.text[start] == "{":  # several on a line, "{…}, {…}"
                line += self.text.count("\n", counted, start)
                counted = start
                try:
                    value, end = decoder.raw_decode(self.text, start)
                except (ValueError, RecursionError):
                    yield line, None
                    broken += 1
                    break
                yield line, value
                start = _SEPARATORS.match(self.text, end).end()  # type: ignore[union-attr]  # it matches nothing too

    def error(self, line: int, what: str) -> ResultsError:
        """What is wrong, and where."""
        return ResultsError(f"{self.name}, line {line}: {what}")


@dataclass(frozen=True)
class Format:
    """One foreign format.

    Attributes:
        name: for people.
        recognises: whether a text holds it; cheap, and never raises.
        read: its rows.
    """

    name: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source], Imported]


@dataclass(frozen=True)
class Cells:
    """One record's values by name, each checked as it is read. What is absent, empty or null is None."""

    values: Mapping[str, Any]
    source: Source
    line: int

    def text(self, name: str) -> str | None:
        """One line, without HTML."""
        value = self.values.get(name)
        if value is None or isinstance(value, list | dict):
            return None
        return plain(str(value)) or None

    def whole(self, name: str) -> int | None:
        """A whole number."""
        value = self._number(name)
        if value is None:
            return None
        if value != int(value):
            raise self.error(name, "is no whole number")
        return int(value)

    def count(self, name: str) -> int:
        """A whole number from 0 on; 0 where there is none."""
        value = self.whole(name) or 0
        if not 0 <= value <= _MOST_TOKENS:
            raise self.error(name, f"is not from 0 to {_MOST_TOKENS}")
        return value

    def rate(self, name: str) -> float | None:
        """A number above 0: a rate, a time."""
        value = self._number(name)
        if value is None:
            return None
        if value <= 0:
            raise self.error(name, "is not above 0")
        try:
            return float(value)
        except OverflowError:
            raise self.error(name, "is too large") from None

    def rates(self, name: str) -> list[float]:
        """The numbers of a list, all above 0."""
        values = self.values.get(name)
        if values is None:
            return []
        if not isinstance(values, list):
            raise self.error(name, "is no list")
        found = [Cells({name: value}, self.source, self.line).rate(name) for value in values]
        return [value for value in found if value is not None]

    def settings(self, without: frozenset[str]) -> dict[str, Any]:
        """All plain values but those of these names, as `engine_settings` holds them."""
        kept = {plain(name): value for name, value in self.values.items() if name not in without}
        return {
            name: plain(value) if isinstance(value, str) else value
            for name, value in kept.items()
            if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
        }

    def error(self, name: str, what: str) -> ResultsError:
        """What is wrong with a value, and where."""
        return self.source.error(self.line, f"{name}: {plain(repr(self.values.get(name)))[:80]} {what}")

    def _number(self, name: str) -> float | int | None:
        """Whole ones stay exact."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, str | int):  # true is 1, as in other formats of the same tool
            try:
                return int(value)
            except ValueError:
                pass
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.error(name, "is no number")
        return number


def plain(text: str) -> str:
    """Outside text as a cell may hold it: one line, no control characters, nothing that a browser takes for HTML."""
    text = one_line(_TAG.sub("", _ANSI.sub("", text)))
    return " ".join(text.replace("<", " ").replace(">", " ").split())
