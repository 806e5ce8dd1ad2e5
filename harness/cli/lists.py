"""Lists on the command line: words apart by commas."""

from __future__ import annotations

import math

from harness.errors import UserError


def words(text: str) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


def choices(text: str, flag: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Words that are all known.

    Raises:
        UserError: one is not.
    """
    chosen = words(text)
    for word in chosen:
        if word not in known:
            raise UserError(f"{flag} {text}: {word!r} is none of {', '.join(known)}")
    return chosen


def splits(text: str) -> tuple[tuple[float, ...], ...]:
    """As llama-bench writes them: parts apart by /, splits by a comma.

    Raises:
        UserError: a part is no number, or nothing is left for any GPU.
    """
    found = []
    for word in words(text):
        try:
            parts = tuple(float(part) for part in word.split("/"))
        except ValueError:
            parts = ()
        if not all(0 <= part < math.inf for part in parts) or not any(parts):
            raise UserError(f"-ts {text}: {word!r} is no split; write each GPU's part, as in 3/1 or 1/1,3/1")
        found.append(parts)
    return tuple(found)
