"""Whatever goes wrong below HTTP is one line, and names no address that a row must not hold."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import httpcore2
import pytest

from backends.openai.errors import BrokenOffError, ServerError
from backends.openai.explained import explained

# What asyncio raises where a name stands for one address, and for several.
ONE = OSError(errno.ECONNREFUSED, "Connect call failed ('192.0.2.7', 8080)")
SEVERAL = OSError(
    "Multiple exceptions: [Errno 111] Connect call failed ('192.0.2.7', 8080), "
    "[Errno 111] Connect call failed ('2001:db8::1', 8080, 0, 0)"
)
ERRORS = {
    "refused": (ONE, "nothing listens"),
    "refused by each address": (SEVERAL, "nothing listens"),
    "no way there": (OSError(errno.EHOSTUNREACH, "Connect call failed ('192.0.2.7', 8080)"), "cannot be reached"),
    "too many open files": (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
    "no such name": (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host"),
    "a name that cannot be": (UnicodeError("label empty or too long"), "name"),
    "no connection in time": (httpcore2.ConnectTimeout(), "no connection in time"),
    "silence": (TimeoutError(), "5 s"),
    "TLS": (ssl.SSLError(1, "certificate verify failed"), "TLS"),
}


async def _raised(error):
    async with explained(5):
        raise error


@pytest.mark.parametrize(("error", "words"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_told_in_words_for_people(error, words):
    with pytest.raises(ServerError) as told:
        asyncio.run(_raised(error))
    assert words in str(told.value)
    assert "192.0.2.7" not in str(told.value)
    assert "2001:db8" not in str(told.value)


@pytest.mark.parametrize("error", [ConnectionResetError(104, "Connection reset by peer"), BrokenPipeError()])
def test_a_broken_connection_is_another_kind(error):
    with pytest.raises(BrokenOffError, match="broke off"):
        asyncio.run(_raised(error))
