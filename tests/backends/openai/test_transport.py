"""Connections that a server closed while nobody looked."""

from __future__ import annotations

import asyncio
import socketserver
import threading
import time
from contextlib import contextmanager

import pytest

from backends.openai.client import Client
from backends.openai.errors import BrokenOffError, ServerError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
SEEN_S = 0.3  # in which the server's end of a connection has certainly arrived


class _OneAnswer(socketserver.StreamRequestHandler):
    """Answers one request, as if more were welcome on the connection, and closes it."""

    def handle(self):
        self.server.requests += 1
        while self.rfile.readline().strip():
            pass
        if self.server.requests > self.server.answers:
            return
        if self.server.requests == self.server.answers and self.server.ends:
            self.server.socket.close()
        self.wfile.write(ANSWER)


@contextmanager
def _server(answers: int, *, ends: bool = False):
    """One that answers so many requests; whether nobody listens after the last."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OneAnswer) as server:
        server.requests, server.answers, server.ends = 0, answers, ends
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server, f"http://127.0.0.1:{port}/v1"
        server.shutdown()


async def _ask_twice(base_url):
    async with Client(base_url, patience_s=5, clock=time.perf_counter_ns) as client:
        await client.get("models")
        time.sleep(SEEN_S)  # a measurement blocks the loop like this: nothing is noticed meanwhile
        return (await client.get("models"))[0]


def test_a_request_on_a_connection_that_went_stale_is_sent_on_another():
    with _server(answers=2) as (server, base_url):
        assert asyncio.run(_ask_twice(base_url)) == {}
    assert server.requests == 2


def test_it_is_sent_again_only_once():
    with _server(answers=1) as (server, base_url), pytest.raises(BrokenOffError):
        asyncio.run(_ask_twice(base_url))
    assert server.requests == 2


def test_a_server_that_ended_meanwhile_broke_off():
    with _server(answers=1, ends=True) as (_, base_url), pytest.raises(ServerError, match="broke off"):
        asyncio.run(_ask_twice(base_url))
