"""What can go wrong below HTTP, in one line each. The system's own words are not used where they name an address."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from backends.openai.errors import BrokenOffError, ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_NO_MORE_FILES = frozenset({errno.EMFILE, errno.ENFILE})


@asynccontextmanager
async def explained(silence_s: float, what: str = "the server does not answer") -> AsyncIterator[None]:
    """Turn whatever a request raises into a `ServerError`.

    Args:
        silence_s: how long is waited.
        what: it means where that is over.
    """
    import httpcore2
    import httpx2

    try:
        yield
    except ssl.SSLError as error:
        raise ServerError(f"TLS failed: {error}") from error
    except httpcore2.ConnectTimeout as error:
        raise ServerError("the server does not answer: no connection in time") from error
    except TimeoutError as error:
        raise ServerError(f"{what}: nothing for {silence_s:g} s (--timeout)") from error
    except (BrokenPipeError, ConnectionResetError, ConnectionAbortedError) as error:
        raise BrokenOffError(f"the server broke off ({error.strerror or error})") from error
    except OSError as error:
        raise ServerError(_unreachable(error)) from error
    except UnicodeError as error:
        raise ServerError("no host can have the name in the address") from error
    except (httpcore2.RemoteProtocolError, httpx2.RemoteProtocolError) as error:
        raise BrokenOffError(f"the server broke off ({error})") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, httpcore2.ProtocolError, httpcore2.NetworkError) as error:
        raise ServerError(f"HTTP failed: {error or type(error).__name__}") from error


def _unreachable(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"no such host is known ({error.strerror})"
    if error.errno in _NO_MORE_FILES:
        return "this process may open no more connections (ulimit -n)"
    if error.errno in (None, errno.ECONNREFUSED):  # None: each of the addresses of a name failed
        return "nothing listens there; start the server, or name its address (--base-url)"
    return f"it cannot be reached ({os.strerror(error.errno)})"
