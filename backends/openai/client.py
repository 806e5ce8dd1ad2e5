"""An HTTP client for one server: JSON answers, and streams with the time at which each event came."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from backends.openai.body import parsed
from backends.openai.busy import wait
from backends.openai.chunk import DONE
from backends.openai.errors import ServerError, of_status
from backends.openai.explained import explained

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import httpx2

_CONNECT_S = 10.0
_ATTEMPTS = 4
_LONGEST_END_S = 1.0
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Recording:
    """The events of one stream, as they came.

    Attributes:
        sent_ns: the first byte of the last attempt was handed to the socket.
        stamps_ns: when the bytes that complete each event arrived.
        events: their data.
        attempts: 1, and one more for each time that the server was busy.
    """

    sent_ns: int
    stamps_ns: Sequence[int]
    events: Sequence[str]
    attempts: int = 1


@dataclass(frozen=True)
class Patience:
    """How long to wait for a stream.

    Attributes:
        silence_s: the longest time without an event.
        most_events: a stream of more ignores `max_tokens`.
        attempts: where the server is busy.
    """

    silence_s: float
    most_events: int
    attempts: int = _ATTEMPTS


class Client:
    """Connections to one server, kept open between requests. No proxy of the environment is used: it would be timed.

    Args:
        base_url: ends in /v1 as a rule, and holds neither user nor password.
        api_key: sent as a bearer token.
        auth: user and password of a gate before the server.
        patience_s: the longest wait for an answer that is not streamed.
        clock: nanoseconds from any zero.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        auth: tuple[str, str] | None = None,
        patience_s: float = 300.0,
        clock: Callable[[], int],
    ) -> None:
        import httpx2

        from backends.openai.transport import Transport

        self._base, self._patience_s = base_url.rstrip("/"), patience_s
        self._root = self._base.removesuffix("/v1")
        self._http = httpx2.AsyncClient(
            auth=auth,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx2.Timeout(patience_s, connect=_CONNECT_S, pool=None),
            transport=Transport(clock),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, path: str, *, from_root: bool = False) -> tuple[dict[str, Any], Mapping[str, str]]:
        """A JSON document and the answer's headers.

        Args:
            path: below the base URL.
            from_root: below the base URL without its /v1.

        Raises:
            ServerError: there is none.
        """
        async with explained(self._patience_s):
            response = await self._http.get(self._url(path, from_root=from_root))
        if response.status_code != 200:
            raise of_status(response.status_code, path, response.text)
        return _document(response.text), response.headers

    async def post(self, path: str, body: Mapping[str, Any], *, from_root: bool = False) -> str:
        """The body of an answer that is not streamed; asked again where the server is busy.

        Raises:
            ServerError: there is none.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            async with explained(self._patience_s):
                url = self._url(path, from_root=from_root)
                response = await self._http.post(url, content=encoded(body), headers=_JSON)
            if response.status_code == 200:
                return response.text
            await wait(response, path, attempt, _ATTEMPTS)
        raise AssertionError("the last attempt raises")

    async def stream(
        self, path: str, body: bytes, patience: Patience, barrier: asyncio.Barrier | None = None
    ) -> Recording:
        """Send a request and keep its stream; asked again where the server is busy, before the first event.

        Args:
            path: below the base URL.
            body: from `encoded`, with `stream` true.
            patience: how long to wait.
            barrier: of all streams at once: none of them is parsed before all are whole.

        Raises:
            ServerError: the server refuses, answers without a stream, stalls or breaks off.
        """
        import httpx2

        headers = {**_JSON, "Accept": "text/event-stream"}
        timeout = httpx2.Timeout(patience.silence_s, connect=_CONNECT_S, pool=None)
        for attempt in range(1, patience.attempts + 1):
            async with (
                explained(patience.silence_s, "the stream stalls"),
                self._http.stream("POST", self._url(path), content=body, headers=headers, timeout=timeout) as response,
            ):
                if response.status_code == 200:
                    _check_streams(response)
                    return await _recorded(response, patience, attempt, barrier)
                await response.aread()
            await wait(response, path, attempt, patience.attempts)
        raise AssertionError("the last attempt raises")

    def _url(self, path: str, *, from_root: bool = False) -> str:
        return f"{self._root if from_root else self._base}/{path}"


def encoded(body: Mapping[str, Any]) -> bytes:
    """A request's body; made before the clock starts, since a long prompt takes milliseconds."""
    return json.dumps(body, separators=(",", ":")).encode()


async def _recorded(
    response: httpx2.Response, patience: Patience, attempt: int, barrier: asyncio.Barrier | None
) -> Recording:
    import httpx2

    network = response.extensions["network_stream"]
    sent = network.sent
    await network.until_whole(patience.silence_s, patience.most_events)
    if barrier:
        await barrier.wait()
    stamps: list[int] = []
    events: list[str] = []
    source = aiter(httpx2.EventSource(response))
    async for event in source:
        stamps.append(network.arrived)
        events.append(event.data)
        if event.data == DONE:
            break
        if len(events) > patience.most_events:
            raise ServerError(f"the stream does not end: {len(events)} events, whatever max_tokens says")
    with suppress(TimeoutError):  # so that the connection can be used again
        async with asyncio.timeout(_LONGEST_END_S):
            async for _ in source:
                pass
    return Recording(sent, stamps, events, attempt)


def _check_streams(response: httpx2.Response) -> None:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        raise ServerError(
            f"the server ignores `stream` and answers in one piece ({kind or 'no content type'}): "
            "neither its first token nor its rate can be seen"
        )


def _document(text: str) -> dict[str, Any]:
    document = parsed(text)
    if not isinstance(document, dict):
        raise ServerError(f"the server sends {text[:60]!r} in place of a JSON object", 200)
    return document
