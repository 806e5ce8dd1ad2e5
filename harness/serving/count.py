"""How many tokens a server makes of a text: by its tokeniser where it has an endpoint for that, else by a reply.

Where it tells no numbers at all, the tokenizer of the model's files does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from backends.openai.body import parsed
from backends.openai.errors import ServerError, UncountedError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from backends.openai.dialects import Tokeniser
    from harness.models.source import ModelSource
    from harness.serving.server import Server

_SAMPLE = "time year people way"


@dataclass
class ByReply:
    """Asks for a reply of one token. The text is then in the server's prompt cache."""

    server: Server
    is_pure: bool = False
    _known: dict[str, int] = field(default_factory=dict)

    async def __call__(self, text: str) -> int:
        """Tokens of the prompt that the server makes of it, those of its chat template included."""
        if text not in self._known:
            self._known[text] = await self.server.count(text)
        return self._known[text]


@dataclass
class ByTokeniser:
    """Asks its tokeniser.

    Args:
        server: to ask.
        tokeniser: its endpoint.
        beside: tokens that a prompt has beside those of its text.
    """

    server: Server
    tokeniser: Tokeniser
    beside: int = 0
    is_pure: bool = True

    async def __call__(self, text: str) -> int:
        """Tokens of the prompt that the server makes of it.

        Raises:
            ServerError: it does not tell.
        """
        tokeniser = self.tokeniser
        body = {"model": self.server.model, tokeniser.text: text, **tokeniser.fixed}
        return _number(await self.server.client.post(tokeniser.path, body, from_root=tokeniser.from_root)) + self.beside


@dataclass
class ByFiles:
    """Asks the tokenizer of the model's own files, where the server counts nothing.

    Args:
        tokenizer: of these files.
    """

    tokenizer: Tokenizer
    is_pure: bool = True

    async def __call__(self, text: str) -> int:
        """Tokens of a prompt, those that the tokenizer adds included."""
        return len(self.tokenizer.encode(text).ids)

    def of_reply(self, text: str) -> int:
        """Tokens of a reply's text."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)


def by_files(source: ModelSource | None) -> ByFiles | None:
    """The tokenizer of a model's files; None where there is none that can be read here."""
    folder = source.path if source else None
    if folder is None or not (file := folder / "tokenizer.json").is_file() or find_spec("tokenizers") is None:
        return None
    from tokenizers import Tokenizer  # noqa: PLC0415  # comes with torch's and MLX's extras

    return ByFiles(Tokenizer.from_file(str(file)))


async def counter(server: Server, files: ByFiles | None) -> ByReply | ByTokeniser | ByFiles:
    """The best way to count that works, held against the count of a reply.

    Raises:
        ServerError: nobody tells a number of prompt tokens.
    """
    by_reply = ByReply(server)
    try:
        await by_reply(_SAMPLE)
    except UncountedError:
        if files is None:
            raise
        return files
    tokeniser = server.dialect.tokeniser
    if tokeniser is None or server.path != "completions":
        return by_reply
    try:
        counted = await ByTokeniser(server, tokeniser)(_SAMPLE)
    except ServerError:
        return by_reply
    return ByTokeniser(server, tokeniser, await by_reply(_SAMPLE) - counted)


def _number(text: str) -> int:
    """`count`, or the length of `tokens`."""
    answer = parsed(text)
    if isinstance(answer, dict):
        if isinstance(answer.get("count"), int):
            return int(answer["count"])
        if isinstance(answer.get("tokens"), list):
            return len(answer["tokens"])
    raise ServerError(f"the server's tokeniser answers {text[:60]!r}, which holds no count")
