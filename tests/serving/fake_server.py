"""A server of OpenAI's API without a model: it answers at known times, and logs when it really sent what.

    python tests/serving/fake_server.py [--certificate FILE]

It prints its port. `POST /behaviours` with fields of `Behaviour` returns a name; that behaviour is then served under
`/NAME/v1`, and `GET /NAME/log` tells what was asked and when each token left, by CLOCK_MONOTONIC in nanoseconds, as
`time.perf_counter_ns` of any process on this machine tells it. Deadlines are absolute: no delay adds up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
import time
from typing import Any

from behaviour import Behaviour
from connection import Connection, Request
from served import Served


class FakeServer:
    """All behaviours, by the first part of the path."""

    def __init__(self) -> None:
        self._served: dict[str, Served] = {}

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests until the client goes."""
        connection = Connection(reader, writer)
        while (request := await connection.request()) and not writer.is_closing():
            await self._answer(connection, request)
        writer.close()

    async def _answer(self, connection: Connection, request: Request) -> None:
        arrived_ns = time.perf_counter_ns()
        method, path, headers, raw = request
        _, name, rest = (path + "/").split("/", 2)
        rest = rest.rstrip("/")
        if (method, name) == ("POST", "behaviours"):
            return connection.document(200, json.dumps(self._add(json.loads(raw))).encode())
        served = self._served.get(name)
        if served is None:
            return connection.error(404, "Not Found")
        if rest == "log":
            return connection.document(200, json.dumps({"requests": served.log, "gets": served.gets}).encode())
        key = served.behaviour.api_key
        if key and headers.get("authorization") != f"Bearer {key}":
            return connection.error(401, f"Incorrect API key provided: {headers.get('authorization')}")
        if method == "POST" and rest in _completions(served.behaviour):
            body = json.loads(raw)
            kept = {"path": rest, "body": body, "arrived_ns": arrived_ns, "authorization": headers.get("authorization")}
            return await served.complete(connection, body, kept)
        served.gets.append(rest)
        document = _tokenized(served.behaviour, raw) if rest == "tokenize" else _told(served.behaviour, rest)
        return connection.error(404, "Not Found") if document is None else connection.document(200, document)

    def _add(self, fields: dict[str, Any]) -> str:
        lists = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        name = f"b{len(self._served)}"
        self._served[name] = Served(Behaviour(**lists))
        return name


def _completions(how: Behaviour) -> list[str]:
    return ["v1/chat/completions"] if how.chat_only else ["v1/chat/completions", "v1/completions"]


def _tokenized(how: Behaviour, raw: bytes) -> bytes | None:
    """As llama-server and vLLM tell it."""
    n_tokens = len(how.prompt(json.loads(raw))) if how.tokenizes else 0
    return json.dumps({"tokens": list(range(n_tokens)), "count": n_tokens}).encode() if how.tokenizes else None


def _told(how: Behaviour, path: str) -> bytes | None:
    """What a GET answers."""
    models = [{"id": name, "object": "model", "owned_by": how.owned_by} for name in how.models]
    told = {
        "v1/models": {"object": "list", "data": models},
        "version": how.version and {"version": how.version},
        "api/version": how.ollama_version and {"version": how.ollama_version},
        "props": how.props,
    }.get(path)
    return json.dumps(told).encode() if told else None


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--certificate", help="a PEM file with key and certificate: serve TLS")
    certificate = parser.parse_args().certificate
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    server = await asyncio.start_server(FakeServer().connected, "127.0.0.1", 0, ssl=context, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
