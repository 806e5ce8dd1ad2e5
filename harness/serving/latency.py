"""What the way to a server and its own handling of a request cost, measured on their own."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from backends.openai.client import encoded
from backends.openai.errors import ServerError
from harness.serving.reply import read
from harness.serving.round import CLOCK, patience

if TYPE_CHECKING:
    from harness.serving.prompts import Prompts
    from harness.serving.server import Server

_TIMES = 5


@dataclass(frozen=True)
class Latency:
    """Medians of a few requests, one at a time.

    Attributes:
        network_s: a GET of the list of models: network, HTTP and the server's routing; None: it has no list.
        server_s: a request of the shortest prompt and one token, sent to first token: that, and tokenising, queueing,
            and one pass of the model.
    """

    network_s: float | None
    server_s: float


async def measure(server: Server, prompts: Prompts, silence_s: float) -> Latency:
    """Ask for next to nothing.

    Raises:
        ServerError: the server does not answer.
    """
    body = encoded(server.body(await prompts.shortest(), 1))
    waits = patience(silence_s, 1)
    replies = [read(await server.client.stream(server.path, body, waits)) for _ in range(_TIMES + 1)]
    return Latency(await _network_s(server), median(reply.ttft_s for reply in replies[1:]))


async def _network_s(server: Server) -> float | None:
    times = []
    for _ in range(_TIMES + 1):
        began_ns = CLOCK()
        try:
            await server.client.get("models")
        except ServerError:
            return None
        times.append((CLOCK() - began_ns) / 1e9)
    return median(times[1:])
