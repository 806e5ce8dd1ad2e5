"""One value of a row, checked against its column and made what every format can hold."""

from __future__ import annotations

import json
import math
import sys
from functools import lru_cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from results.safe_text import one_line, without_home, without_names

if TYPE_CHECKING:
    from types import UnionType

    from results.schema import Column, Kind

_TYPES: dict[Kind, type | UnionType] = {"text": str, "int": Integral, "float": Real, "json": dict | list}
_LARGEST = sys.float_info.max


def cell(column: Column, value: object) -> str | int | float | None:
    """A value as it is kept: text on one line and without a home directory, JSON as compact text, None for no value.

    Errors and JSON, which repeat what engines and the system say, are without this machine's host and user names too;
    other text is a label that people chose, or a product's name.

    A float that is not finite is no value: neither CSV nor JSON can say it.

    Raises:
        TypeError: the value is of another kind than the column.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, _TYPES[column.kind])):
        raise TypeError(f"{column.name}: {column.kind} expected, not {value!r}")
    if isinstance(value, str):
        text = _clean_text(value)
        return (without_names(text) if column.name == "error" else text) or None
    if isinstance(value, Integral):
        return int(value) if column.kind == "int" else float(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return None if value is None else compact_json(value)


@lru_cache(1024)  # most cells say what the row before said
def _clean_text(text: str) -> str:
    return without_home(one_line(text))


def compact_json(value: object) -> str:
    """JSON text, equal for equal values; a number that is not finite is null."""
    return json.dumps(_clean(value), sort_keys=True, separators=(",", ":"))


def document(column: Column, text: str) -> dict[str, Any] | list[Any] | None:
    """What a JSON cell holds; None where that is not what its column allows."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if column.shape is None or not isinstance(value, column.shape):
        return None
    if column.lengths and not (len(value) in column.lengths and all(map(_is_number_or_null, value))):
        return None
    return value


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _is_number_or_null(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value is None
    return abs(value) <= _LARGEST


@lru_cache(1024)
def normal_json(text: str) -> str:
    """JSON text as `compact_json` writes it; what is no JSON stays as it is."""
    try:
        return compact_json(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _clean(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return without_names(without_home(value))
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
