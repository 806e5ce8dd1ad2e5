"""What is there, for whoever named something that is not."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_MOST = 20


def listing(wanted: str, names: Collection[str]) -> str:
    """The names for an error message, those nearest to what was wanted first: "there is a, b and 3 more"."""
    if not names:
        return "it holds no models"
    near = difflib.get_close_matches(wanted, names, _MOST)
    shown = [*near, *sorted(set(names) - set(near))]
    more = f" and {len(shown) - _MOST} more" if len(shown) > _MOST else ""
    return f"there is {', '.join(shown[:_MOST])}{more}"
