"""Cells that a server's line fills otherwise than an engine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.case import case_name
from reports.numbers import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def ttft_cell(line: Mapping[str, Any]) -> str:
    """Milliseconds to the first token; of a client, which sees no engine's TTFT, marked with an asterisk."""
    if line["ttft_s"] is not None:
        return number(1e3 * line["ttft_s"])
    return number(None) if line["ttft_client_s"] is None else f"{number(1e3 * line['ttft_client_s'])} *"


def untold(named: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[str]]:
    """What servers, or those who asked them, do not tell, and of which lines that is said.

    Args:
        named: lines of a summary, each with its engine's name.
    """
    found: dict[str, list[str]] = {}
    for name, line in named:
        has_ceiling = line["decode_ceiling_tok_s"] is not None or line["decode_ceiling_spec_tok_s"] is not None
        if line["no_ceiling_why"] and not has_ceiling:
            found.setdefault(f"no ceiling: {line['no_ceiling_why']}", []).append(name)
        if line["not_kept_why"] and line["kv_cache"] == "prefix":
            found.setdefault(line["not_kept_why"], []).append(f"{name}, {case_name(line)}")
    return found


def is_served(line: Mapping[str, Any]) -> bool:
    """Whether it has a client's TTFT in place of an engine's."""
    return line["ttft_s"] is None and line["ttft_client_s"] is not None
