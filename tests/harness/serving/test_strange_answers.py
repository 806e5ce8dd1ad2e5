"""Whatever answers at the address, the row says what is wrong with it in one line, and the run ends."""

from __future__ import annotations

import json
import socketserver
import threading
from contextlib import contextmanager

import pytest


def _http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "\r\n"]).encode() + body


SSE, JSON = "Content-Type: text/event-stream", "Content-Type: application/json"
NONE_LISTED = _http(b'{"data": []}', JSON)
CHUNK = b'data: {"choices": [{"text": "x", "finish_reason": "length"}], "usage": %b}\n\ndata: [DONE]\n\n'

# To a GET, and to a POST.
ANSWERS = {
    "no HTTP": (b"220 mail.example ESMTP\r\n", b""),
    "nothing at all": (b"", b""),
    "a page": (_http(b"<html>welcome</html>", "Content-Type: text/html"),) * 2,
    "a redirect": (_http(b"", "Location: http://192.0.2.7/", status="302 Found"),) * 2,
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n",) * 2,
    "an endless header": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,) * 2,
    "broken compression": (_http(b"no gzip", JSON, "Content-Encoding: gzip"),) * 2,
    "deep JSON": (_http(b"[" * 100_000, JSON),) * 2,
    "models that are none": (_http(b'{"data": [3, null, {"id": {}}, {"id": [1]}]}', JSON), b""),
    "binary events": (NONE_LISTED, _http(b"data: \xff\xfe\x00\n\n", SSE)),
    "an event that never ends": (NONE_LISTED, _http(b"data: " + b"x" * 2_000_000, SSE)),
    "endless events": (NONE_LISTED, _http(b'data: {"choices": []}\n\n' * 50_000, SSE)),
    "counts beyond all numbers": (
        NONE_LISTED,
        _http(CHUNK % b'{"prompt_tokens": 1e999, "completion_tokens": -1}', SSE),
    ),
    "huge counts": (NONE_LISTED, _http(CHUNK % json.dumps({"completion_tokens": 10**30}).encode(), SSE)),
    "an error for a terminal": (NONE_LISTED, _http(b'{"error": "\\u001b[2J\\n\\u202e"}', JSON, status="400 No")),
}


class _Answer(socketserver.StreamRequestHandler):
    def handle(self):
        method = self.rfile.readline()[:4]
        while self.rfile.readline().strip():
            pass
        self.wfile.write(self.server.answers[method == b"POST"])


@contextmanager
def _answering(answers):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Answer) as server:
        server.answers = answers
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
def test_a_strange_answer_costs_a_row(bench, answers):
    with _answering(answers) as base_url:
        error = bench(base_url, "--timeout", "2").error
    assert error.isprintable()
    assert "192.0.2.7" not in error
