"""Reading numbers out of a model's own description, so that a wrong one is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

_LARGEST = 10**9  # of any width, number of heads, of experts, of tokens


class Noted(Mapping[str, object]):
    """A description that remembers which of its keys were asked for.

    Attributes:
        asked: those keys, whether there or not.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> object:
        self.asked.add(key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def word(values: Mapping[str, object], key: str) -> str:
    """A text that must not be missing.

    Raises:
        ValueError: it is.
    """
    if not values.get(key):
        raise ValueError(f"{key} is missing")
    return str(values[key])


def flag(values: Mapping[str, object], key: str, *, default: bool = False) -> bool:
    """Yes or no; `default` where the key is missing or null.

    Raises:
        ValueError: it is something else.
    """
    value = values.get(key)
    if value is None:
        return default
    if value is not True and value is not False:
        raise ValueError(f"{key} is {value!r}, neither true nor false")
    return value


def count(values: Mapping[str, object], key: str, *, default: int | None = None) -> int:
    """A whole number; `default` where the key is missing or null.

    Raises:
        ValueError: it is missing, negative, no whole number or beyond all reason.
    """
    value = values.get(key)
    if value is None:
        if default is None:
            raise ValueError(f"{key} is missing")
        return default
    return _whole(key, value)


def size(values: Mapping[str, object], key: str, *, default: int | None = None) -> int:
    """A whole number that must not be missing or nothing: layers, widths, heads.

    Raises:
        ValueError: it is, or it is 0.
    """
    if (found := count(values, key, default=default)) == 0:
        raise ValueError(f"{key} is 0")
    return found


def per_layer(values: Mapping[str, object], key: str, n_layers: int, *, default: int | None = None) -> tuple[int, ...]:
    """A number for each layer, told as a list or as one number for all of them.

    Raises:
        ValueError: as `count`, or the list has another length.
    """
    value = values.get(key)
    if not is_list(value):
        return (count(values, key, default=default),) * n_layers
    if len(value) != n_layers:
        raise ValueError(f"{key} lists {len(value)} layers, but there are {n_layers}")
    return tuple(_whole(key, each) for each in value)


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether it is a sequence, and not a text."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _whole(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} is {value!r}, not a whole number")
    if value > _LARGEST:
        raise ValueError(f"{key} is {value}, larger than any model")
    return value
