"""Text from outside, made safe to keep in a row and to share."""

from __future__ import annotations

import getpass
import platform
import re
import socket
from pathlib import Path

# A row must stay one line, whatever an engine or the system put into a message, and a terminal takes some of these for
# commands. The characters themselves, so that Arrow's RE2 reads it too.
BREAKING = "[\x00-\x1f\x7f-\x9f\u2028\u2029]"
_BREAKING = re.compile(BREAKING)
_HOME = re.compile(r"(?:/home|/Users|/var/home|[A-Za-z]:[\\/]+Users)[\\/]+[^\\/\s\"']+|/root\b")

_FILE_NAME_BYTES = 100  # of the 255 that most systems allow
_SHORTEST = 3  # letters of a name that can be told from other words
_NOBODY = re.compile(  # is named by these users and hosts, and messages and settings need the words
    "root|users?|admin|administrator|guest|test|nobody|default|local|localhost|host|node|server|desktop|laptop|notebook|"
    "workstation|computer|machine|home|data|linux|ubuntu|debian|fedora|windows|mac|macbook|imac|docker|runner|python|"
    "torch|mlx|llama|model|auto|cuda|metal|vulkan|cpu|gpu|device|memory|nvidia|amd|intel|apple|spark|jetson",
    re.IGNORECASE,
)


# Marks that reorder the text after them: whoever names a model so must not reorder our sentence.
_BIDI_MARKS = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")


def one_line(text: str) -> str:
    """Text as a cell holds it: line breaks and control characters become spaces.

    So do lone surrogates, which stand for what the system could not decode in a file's name, and which UTF-8 lacks.
    """
    return _BREAKING.sub(" ", text).encode(errors="replace").decode()


def as_file_name(text: str) -> str:
    """The name of a file in one folder, of text that may hold anything, such as the separators of a path.

    Short enough that a system takes it with something before and after it; empty where nothing is left.
    """
    plain = re.sub(r"[^\w.-]+", "-", text).strip("-.")
    return plain.encode()[:_FILE_NAME_BYTES].decode(errors="ignore")


def without_bidi_marks(text: str) -> str:
    """Text without the marks that would reorder what stands after it."""
    return _BIDI_MARKS.sub("", text)


def without_home(text: str) -> str:
    """Text in which no path begins with somebody's home directory, and so with their name: `~` stands for it."""
    home = str(Path.home())
    if len(home) > 1:  # a service's home may be the root directory
        text = text.replace(home, "~")
    return _HOME.sub("~", text)


def without_names(text: str) -> str:
    """Text without this machine's host names and its user's name, where they stand as whole words in whatever case.

    `[host]` and `[user]` stand for them. A hyphen joins words: a user called max is not in `max-autotune`.
    """
    hosts = {platform.node(), socket.gethostname()}
    hosts |= {host.partition(".")[0] for host in hosts}
    # The longest first, since it holds the others.
    for name, shown in [*((host, "[host]") for host in sorted(hosts, key=len, reverse=True)), (_user(), "[user]")]:
        if len(name) >= _SHORTEST and not _NOBODY.fullmatch(name):
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", shown, text, flags=re.IGNORECASE)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's user may have no name
        return ""
