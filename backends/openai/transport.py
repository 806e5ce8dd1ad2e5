"""The HTTP library's transport, on sockets that note when bytes arrive.

The library's own pool looks at each of its connections for each request, which takes a second for 200 of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import httpcore2
import httpx2

from backends.openai.network import Backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable


# How a request ends on a connection that its server has closed.
_GONE = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError, httpcore2.RemoteProtocolError)


class Transport(httpx2.AsyncBaseTransport):
    """Keeps every connection to one server open, and makes as many as are needed at once.

    Args:
        clock: notes when bytes arrive.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._ssl_context, self._backend = httpx2.create_ssl_context(), Backend(clock)
        self._idle: list[httpcore2.AsyncHTTPConnection] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the response's body is read as it is asked for.

        A connection that the server closed while it was idle may still look open: then another one is made.
        """
        if idle := await self._idle_one():
            try:
                return await self._answer(idle, request)
            except _GONE as gone:
                try:
                    return await self._answer(self._new(request), request)
                except ConnectionRefusedError:  # it has gone as a whole
                    raise gone from None
        return await self._answer(self._new(request), request)

    async def _answer(self, connection: httpcore2.AsyncHTTPConnection, request: httpx2.Request) -> httpx2.Response:
        answer = await connection.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=_url(request),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer, lambda: self._idle.append(connection)),
            extensions=answer.extensions,
        )

    async def _idle_one(self) -> httpcore2.AsyncHTTPConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_idle() and not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    def _new(self, request: httpx2.Request) -> httpcore2.AsyncHTTPConnection:
        return httpcore2.AsyncHTTPConnection(
            _url(request).origin, self._ssl_context, keepalive_expiry=None, network_backend=self._backend
        )

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in self._idle:
            await connection.aclose()


class _Body(httpx2.AsyncByteStream):
    """An answer's body, whose connection is free once it is closed."""

    def __init__(self, answer: httpcore2.Response, free: Callable[[], None]) -> None:
        self._answer, self._free = answer, free

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in cast("AsyncIterable[bytes]", self._answer.stream):
            yield part

    async def aclose(self) -> None:
        await self._answer.aclose()
        self._free()


def _url(request: httpx2.Request) -> httpcore2.URL:
    url = request.url
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
