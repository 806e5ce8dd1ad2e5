"""Endpoints, "HOST:PORT", of machines that lend their memory: whether they answer, and what a row may say of them."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATIENCE_S = 3.0


def is_loopback(endpoint: str) -> bool:
    """Whether it leads to this machine and is reached from nowhere else."""
    host, _, _ = endpoint.rpartition(":")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def shown(endpoint: str) -> str:
    """As a row may hold it: no other machine's name or address, but the port."""
    return endpoint if is_loopback(endpoint) else f"HOST:{endpoint.rpartition(':')[2]}"


def without_hosts(text: str, endpoints: Iterable[str]) -> str:
    """A text that may name these endpoints, as a row may hold it."""
    for endpoint in endpoints:
        text = text.replace(endpoint, shown(endpoint))
    return text


def answers(endpoint: str) -> bool:
    """Whether somebody accepts connections there."""
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()
    except (OSError, ValueError):  # ValueError: it is none
        return False
    return True
