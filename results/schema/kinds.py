"""Columns in short: one function a kind of cell, each with the bounds and the unit that its kind usually has."""

from __future__ import annotations

from dataclasses import replace

from results.schema.column import Column

_DAY_S = 86_400.0
_RATE_TOK_S = 1e8
_NAME_UNITS = {"_tok_s": "tok/s", "_s": "s", "_gbs": "GB/s", "_bytes": "B", "_bytes_per_token": "B/token", "_j": "J"}


def group(name: str, *columns: Column, since: int = 1) -> list[Column]:
    """Columns about one thing, none older than `since`."""
    return [replace(column, group=name, since=max(since, column.since)) for column in columns]


def text(name: str, meaning: str, required: tuple[str, ...] = (), *, pattern: str = "", since: int = 1) -> Column:
    """Words; `pattern` is what the whole of them must match."""
    return Column(name, "text", meaning, required=required, pattern=pattern, since=since)


def json_object(name: str, meaning: str, *, since: int = 1) -> Column:
    """An object."""
    return Column(name, "json", meaning, since=since, shape=dict)


def json_list(name: str, meaning: str, *, lengths: tuple[int, ...] = (), since: int = 1) -> Column:
    """A list; of numbers where `lengths` says how many."""
    return Column(name, "json", meaning, since=since, shape=list, lengths=lengths)


def integer(
    name: str, meaning: str, required: tuple[str, ...] = (), *, unit: str = "", least: int = 0, since: int = 1
) -> Column:
    """A whole number, by default of no less than 0; its unit is told by its name."""
    return Column(name, "int", meaning, unit=unit or _unit(name), required=required, least=least, since=since)


def number(
    name: str, meaning: str, *, unit: str = "", least: float | None = 0, most: float | None = None, since: int = 1
) -> Column:
    """A number, by default of no less than 0; its unit is told by its name."""
    return Column(name, "float", meaning, unit=unit or _unit(name), least=least, most=most, since=since)


def seconds(name: str, meaning: str) -> Column:
    """A time of at most a day."""
    return number(name, meaning, most=_DAY_S)


def rate(name: str, meaning: str) -> Column:
    """Tokens a second."""
    return number(name, meaning, most=_RATE_TOK_S)


def _unit(name: str) -> str:
    endings = [ending for ending in _NAME_UNITS if name.endswith(ending)]
    return _NAME_UNITS[max(endings, key=len)] if endings else ""
