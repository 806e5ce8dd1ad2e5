"""Cells that a server's line fills otherwise than an engine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.numbers import number

if TYPE_CHECKING:
    from collections.abc import Mapping


def ttft_cell(line: Mapping[str, Any]) -> str:
    """Milliseconds to the first token; of a client, which sees no engine's TTFT, marked with an asterisk."""
    if line["ttft_s"] is not None:
        return number(1e3 * line["ttft_s"])
    return number(None) if line["ttft_client_s"] is None else f"{number(1e3 * line['ttft_client_s'])} *"


def is_served(line: Mapping[str, Any]) -> bool:
    """Whether it has a client's TTFT in place of an engine's."""
    return line["ttft_s"] is None and line["ttft_client_s"] is not None
