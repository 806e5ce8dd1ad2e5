"""HTTP/1.1 for the fake server, with the faults that a library would prevent."""

from __future__ import annotations

import asyncio
import json

from reply import Event

Request = tuple[str, str, dict[str, str], bytes]

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
_BROKEN = {
    "malformed": b'data: {"choices": [{"text": "x\n\n',
    "not_sse": b"<html>proxy</html>\n",
    "error_event": b'data: {"error": {"message": "out of memory", "code": 500}}\n\n',
}


class Connection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    async def request(self) -> Request | None:
        """Method, path, headers by lower-case name, body; None at the end."""
        try:
            begin = await self.reader.readexactly(1)
            if not begin.isalpha():  # the hello of TLS
                self.error(400, "this is HTTP")
                return None
            head = (begin + await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        method, path, _ = first.split()
        return method, path, headers, body

    def document(self, status: int, body: bytes, *headers: str) -> None:
        """A whole JSON answer."""
        lines = ["Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
        self._write(self._head(status, *lines) + body)

    def error(self, status: int, message: str, retry_after: str | None = None) -> None:
        """An error as OpenAI's API words it."""
        headers = [f"Retry-After: {retry_after}"] if retry_after else []
        self.document(status, json.dumps({"error": {"message": message, "code": status}}).encode(), *headers)

    def begin_stream(self) -> None:
        """Headers of server-sent events."""
        self._write(self._head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked"))

    def send(self, event: Event) -> None:
        """One event, at once."""
        self._write(b"%x\r\n%b\r\n" % (len(event.data), event.data))

    def end_stream(self) -> None:
        """The last, empty chunk."""
        self._write(b"0\r\n\r\n")

    async def misbehave(self, fault: str) -> None:
        """Stall until the client goes, break off, or send what nobody can read and then end properly."""
        if fault == "stall":
            await self.reader.read(1)
        elif fault == "break":
            self._writer.transport.abort()
        else:
            self.send(Event(0, _BROKEN[fault]))
            self.end_stream()

    def _head(self, status: int, *lines: str) -> bytes:
        return "\r\n".join([f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}", *lines, "\r\n"]).encode()

    def _write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)
