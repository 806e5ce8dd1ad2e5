"""The socket layer below the HTTP library: it notes when bytes arrive, and lets nobody work before all of them have.

The library takes some 150 µs for a chunk of a stream. At 200 streams that would be most of a core, and each chunk would
be seen late by the work on others. So while a reply streams, its bytes are only kept with their times; they are parsed
once the reply is whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpcore2

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

_END_OF_CHUNKS, _END_OF_EVENTS, _DATA = b"0\r\n\r\n", b"[DONE]", b"data:"
_LONGEST_END = 16
_LOOK_EVERY = 1024  # parts of a reply, whether it may be one without an end


class Bytes(asyncio.Protocol):
    """What one connection brought, each part with the time of its arrival.

    Args:
        clock: of any unit and zero.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.parts: deque[tuple[int, bytes]] = deque()
        self.error: BaseException | None = None
        self.is_over = False
        self.n_data = 0
        self._last = b""
        self._changed = asyncio.Event()
        self.wakes_always = True

    def data_received(self, data: bytes) -> None:
        """Keep it; nothing else is done while replies stream."""
        self.parts.append((self._clock(), data))
        self.n_data += _DATA in data
        self._last = self._last[-_LONGEST_END:] + data
        if self.wakes_always or self.seems_whole or len(self.parts) % _LOOK_EVERY == 0:
            self._changed.set()

    def connection_lost(self, error: BaseException | None) -> None:
        """Nothing more comes."""
        self.error, self.is_over = error, True
        self._changed.set()

    @property
    def seems_whole(self) -> bool:
        """Whether the last bytes are those that end a stream; to be wrong costs nothing but some accuracy."""
        return self._last.endswith(_END_OF_CHUNKS) or _END_OF_EVENTS in self._last

    def forget_end(self) -> None:
        """Another reply is to come."""
        self._last = b""

    async def more(self, timeout_s: float | None) -> None:
        """Wait for what `wakes_always` allows to wake.

        Raises:
            TimeoutError: it does not come.
        """
        self._changed.clear()
        async with asyncio.timeout(timeout_s):
            await self._changed.wait()


class Stream(httpcore2.AsyncNetworkStream):
    """A connection.

    Attributes:
        sent: when the first byte of the last request was handed to the socket.
        arrived: when the bytes that were read last had come.
    """

    def __init__(self, transport: asyncio.Transport, protocol: Bytes, clock: Callable[[], int]) -> None:
        self._transport, self._bytes, self._clock = transport, protocol, clock
        self._is_writing = False
        self.sent = self.arrived = 0

    async def until_whole(self, silence_s: float, most_parts: int) -> None:
        """Wait until the reply that streams has come, reading nothing of it yet.

        Args:
            silence_s: the longest time without data; comments that keep a connection alive are silence, too.
            most_parts: of a reply that ends.

        Raises:
            TimeoutError: nothing came for so long.
        """
        found = self._bytes
        found.wakes_always = False
        try:
            while not (found.is_over or found.seems_whole or len(found.parts) > most_parts):
                before = found.n_data
                try:
                    await found.more(silence_s)
                except TimeoutError:
                    if found.n_data == before:
                        raise
        finally:
            found.wakes_always = True

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # the library's
        """Some bytes, none where nothing more comes.

        Raises:
            TimeoutError: nothing came for so many seconds.
            OSError: the connection broke.
        """
        self._is_writing = False
        while not self._bytes.parts and not self._bytes.is_over:
            await self._bytes.more(timeout)
        if not self._bytes.parts:
            if self._bytes.error:
                raise self._bytes.error
            return b""
        self.arrived, data = self._bytes.parts.popleft()
        if len(data) > max_bytes:
            self._bytes.parts.appendleft((self.arrived, data[max_bytes:]))
        return data[:max_bytes]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        """Hand bytes to the socket."""
        if not self._is_writing:
            self._is_writing, self.sent = True, self._clock()
            self._bytes.forget_end()
        self._transport.write(buffer)

    async def aclose(self) -> None:
        """Close it."""
        self._transport.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> Stream:
        """Encrypt it from here on.

        Raises:
            OSError, ConnectTimeout: the two do not agree, or not in time.
        """
        async with _in_time(timeout):
            encrypted = await asyncio.get_running_loop().start_tls(
                self._transport, self._bytes, ssl_context, server_hostname=server_hostname
            )
        if encrypted is None:
            raise ConnectionResetError("closed while TLS began")
        return Stream(encrypted, self._bytes, self._clock)

    def get_extra_info(self, info: str) -> Any:  # the library's
        """`is_readable` of an idle connection: the server has closed it."""
        if info == "is_readable":
            return bool(self._bytes.parts) or self._bytes.is_over
        return self._transport.get_extra_info(info)


class Backend(httpcore2.AsyncNetworkBackend):
    """Makes connections.

    Args:
        clock: notes when bytes arrive.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Any = None,  # noqa: ARG002
    ) -> Stream:
        """Connect.

        Raises:
            OSError, ConnectTimeout: it cannot be done, or not in time.
        """
        async with _in_time(timeout):
            transport, protocol = await asyncio.get_running_loop().create_connection(
                lambda: Bytes(self._clock), host, port, happy_eyeballs_delay=0.25
            )
        return Stream(transport, protocol, self._clock)


@asynccontextmanager
async def _in_time(timeout_s: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout from error
