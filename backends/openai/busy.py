"""Waiting for a server that is busy: as long as it asks for, within reason."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from backends.openai.errors import ServerError, of_status

if TYPE_CHECKING:
    import httpx2

BUSY = frozenset({429, 502, 503, 504})
"""Status of a server that may answer later; a way of asking is not refused by it."""
FAULT = 500
"""Status of a server that failed, which may pass, or may be due to what was asked."""

_LONGEST_WAIT_S = 30.0


async def wait(response: httpx2.Response, path: str, attempt: int, attempts: int) -> None:
    """Before a busy server is asked again.

    Args:
        response: its refusal, whole.
        path: that was asked for.
        attempt: the number of this one, from 1.
        attempts: that are made.

    Raises:
        ServerError: it is not to be asked again.
    """
    wait_s = _wait_s(response, attempt)
    if response.status_code not in {*BUSY, FAULT} or attempt == attempts or wait_s > _LONGEST_WAIT_S:
        error = of_status(response.status_code, path, response.text)
        asked = f"; it asks to wait for {wait_s:g} s" if wait_s > _LONGEST_WAIT_S else ""
        raise ServerError(f"{error}{asked}", error.status)
    await asyncio.sleep(wait_s)


def _wait_s(response: httpx2.Response, attempt: int) -> float:
    """What the server asks for, in seconds or until a date; else twice as long each time."""
    asked = response.headers.get("retry-after", "").strip()
    if asked.isdecimal():
        return float(asked)
    try:
        return max((parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return 0.25 * float(2**attempt)
