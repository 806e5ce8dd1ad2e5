"""All fixed text of a report, one table a language: `en.toml`, `ja.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from string import Formatter
from types import MappingProxyType
from typing import Any

from results.amounts import counted
from results.errors import ResultsError

LANGUAGES = ("en", "ja")

Words = Mapping[str, str]
"""Texts by dotted key, `page.title`; places to fill in are named as in `str.format`, and `Text` knows one more way."""


class Text(str):
    """A fixed text in which `{n:case|cases}` becomes `1 case`, or `2 cases`."""

    __slots__ = ()

    def format(self, *args: object, **fields: object) -> str:
        """With the places filled in."""
        return _Counts().vformat(self, args, fields)


class _Counts(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        one, is_count, many = format_spec.partition("|")
        return counted(value, one, many) if is_count else str(super().format_field(value, format_spec))


@lru_cache
def words(lang: str) -> Words:
    """The texts of a language.

    Raises:
        ResultsError: there is no table of that language.
    """
    if lang not in LANGUAGES:
        raise ResultsError(f"no words for the language {lang!r}, only for {', '.join(LANGUAGES)}")
    text = resources.files("reports.words").joinpath(f"{lang}.toml").read_text(encoding="utf-8")
    return MappingProxyType(dict(_flat(tomllib.loads(text), "")))


def _flat(table: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in table.items():
        pairs += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", Text(value))]
    return pairs
