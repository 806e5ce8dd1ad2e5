"""The hot path: one round of streams. Their times are those of the socket's bytes, by the clock of this file."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING

import numpy as np

from backends.openai.client import Patience
from backends.openai.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from backends.openai.client import Client, Recording

CLOCK = time.perf_counter_ns
_SPARE_EVENTS = 1000  # beside four for each token: a stream of more never ends


def patience(silence_s: float, n_tokens: int) -> Patience:
    """For a reply of so many tokens.

    Args:
        silence_s: the longest time without an event.
        n_tokens: of the reply.
    """
    return Patience(silence_s, 4 * n_tokens + _SPARE_EVENTS)


async def play(
    client: Client, path: str, bodies: Sequence[bytes], waits: Patience, starts_s: Sequence[float] | None = None
) -> list[Recording]:
    """Send one request for each stream, and wait for all of them.

    Args:
        client: to the server.
        path: below its base URL.
        bodies: the streams' requests.
        waits: how long to wait for each.
        starts_s: when to send each, from the beginning of the round; None: all at once.

    Raises:
        ServerError: one of them failed; the others are then given up.
    """
    now = asyncio.get_running_loop().time
    begin, barrier = now(), asyncio.Barrier(len(bodies))

    async def one(body: bytes, start_s: float) -> Recording:
        await asyncio.sleep(max(begin + start_s - now(), 0))
        return await client.stream(path, body, waits, barrier)

    gc.collect()
    gc.disable()  # a collection between two tokens would be counted as the server's time
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one(body, start_s))
                for body, start_s in zip(bodies, starts_s or [0.0] * len(bodies), strict=True)
            ]
    except BaseExceptionGroup as several:
        raise _first(several) from None
    finally:
        gc.enable()
    return [task.result() for task in tasks]


def arrivals_s(rate: float, n_requests: int, seed: int, repetition: int) -> list[float]:
    """When the requests of a round are sent: a Poisson process that begins with the first of them.

    Args:
        rate: requests a second on average.
        n_requests: of the round.
        seed: of the run.
        repetition: the round; the same ones of the same seed give the same times.
    """
    waits = np.random.Generator(np.random.Philox([seed, repetition])).exponential(1 / rate, n_requests - 1)
    return [0.0, *np.cumsum(waits).tolist()]


def _first(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """What to tell of errors that came together: the server's, where there is one."""
    flat = [*_flat(several.exceptions)]
    return next((error for error in flat if isinstance(error, ServerError)), flat[0])


def _flat(errors: Iterable[BaseException]) -> Iterable[BaseException]:
    for error in errors:
        if isinstance(error, BaseExceptionGroup):
            yield from _flat(error.exceptions)
        else:
            yield error
