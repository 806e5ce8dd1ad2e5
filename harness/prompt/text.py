"""The file of `--prompt-file`, read and named."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UserError
from results.safe_text import one_line, without_bidi_marks, without_home

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 2**24  # more than any model's context takes, and still tokenised in seconds
_HASH_START = 12  # hex digits that tell texts of one name apart


@dataclass(frozen=True)
class PromptText:
    """A text whose tokens are to be the prompt.

    Attributes:
        name: of its file, without folders, as a row's cell keeps it.
        sha256: of its bytes.
        text: all of it.
    """

    name: str
    sha256: str
    text: str

    @property
    def label(self) -> str:
        """Its name, and what tells it from others of that name."""
        return f"{self.name} {self.sha256[:_HASH_START]}"


def read_text(path: Path) -> PromptText:
    """Read a prompt file.

    Raises:
        UserError: there is no such file, it cannot be read, or it is empty, too large or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)  # what is no regular file may have no end
        if len(content) > _MOST_BYTES:
            raise UserError(f"--prompt-file {path}: more than any context holds; {_MOST_BYTES} bytes are the most")
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"--prompt-file {path}: there is no such file") from None
    except OSError as error:
        raise UserError(f"--prompt-file {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"--prompt-file {path}: not UTF-8 text: byte {error.start} is {content[error.start]:#04x}"
        ) from error
    if not text:
        raise UserError(f"--prompt-file {path}: the file is empty")
    name = without_home(one_line(without_bidi_marks(path.name))).strip()
    return PromptText(name or "text", hashlib.sha256(content).hexdigest(), text)
