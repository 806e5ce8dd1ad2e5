"""What a server, or the way to it, did wrong."""

from __future__ import annotations

from backends.openai.body import parsed

_MOST_CHARACTERS = 240


class ServerError(Exception):
    """One line for people.

    Attributes:
        status: of HTTP, where the server answered with one.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UncountedError(ServerError):
    """The server tells no number of tokens."""

    def __init__(self) -> None:
        super().__init__("the server tells no count of tokens, streamed or not, so nobody knows what work it did")


class BrokenOffError(ServerError):
    """The server closed the connection where an answer was due."""


def of_status(status: int, path: str, body: str) -> ServerError:
    """What an answer that is none means."""
    said = told(body)
    because = f": {said}" if said else ""
    match status:
        case 401 | 403:
            return ServerError(
                f"the server refuses the API key ({status}; --api-key, or OPENAI_API_KEY){because}", status
            )
        case 404 | 405:
            return ServerError(
                f"the server has no {path} there ({status}; a base URL ends in /v1 as a rule){because}", status
            )
        case 429:
            return ServerError(f"the server is busy (429){because}", status)
        case _:
            return ServerError(f"the server answers {status}{because}", status)


def told(body: str) -> str:
    """The message in the body of an error, in whichever of the usual shapes; its beginning where it is none."""
    document = parsed(body)
    if document is None:
        document = body
    while isinstance(document, dict):
        document = next((document[key] for key in ("error", "message", "detail") if document.get(key)), "")
    line = " ".join(str(document).split())
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
