"""JSON that a server sent."""

from __future__ import annotations

import json
from typing import Any


def parsed(text: str) -> Any:  # JSON
    """What a text holds; None where that is no JSON, or deeper than anything meant."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
