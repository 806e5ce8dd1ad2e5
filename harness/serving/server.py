"""How to ask a server: as its dialect says where it is recognised, else tried and observed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backends.openai.busy import BUSY, FAULT
from backends.openai.chunk import parse
from backends.openai.client import encoded
from backends.openai.dialects import UNKNOWN, Dialect
from backends.openai.errors import ServerError, UncountedError
from harness.serving.reply import read
from harness.serving.round import patience
from harness.serving.told import REFUSED_FOR_ALL, Told, dialect_of, models_of, served_name, told_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backends.openai.client import Client, Patience
    from harness.serving.prompts import Prompt

_TEXT_PATH, _CHAT_PATH = "completions", "chat/completions"


@dataclass(frozen=True)
class Server:
    """A server that answers, and how to ask it.

    Attributes:
        client: to it.
        model: its name there.
        dialect: what it understands.
        told: what it says of itself.
        path: of completions; of chat completions where it has no others.
        takes_ids: token ids as a prompt.
        is_exact: it takes the fields that make a reply exactly so long.
        counts: its streams end with its counts of tokens.
        eos_ids: of the model, where they are known here.
    """

    client: Client
    model: str
    dialect: Dialect
    told: Told
    path: str = _TEXT_PATH
    takes_ids: bool = False
    is_exact: bool = True
    counts: bool = True
    eos_ids: tuple[int, ...] = field(default=())

    @property
    def name(self) -> str:
        """With its version."""
        return " ".join(filter(None, (self.dialect.name, self.told.version)))

    def body(self, prompt: Prompt, n_tokens: int, *, cached: bool = False, stream: bool = True) -> dict[str, Any]:
        """A request.

        Args:
            prompt: token ids only where it takes them.
            n_tokens: of the reply, at least 1.
            cached: its prompt cache may be used.
            stream: chunk by chunk.
        """
        asked = self.dialect.exact(n_tokens, self.eos_ids)
        fields = asked if self.is_exact else {name: asked[name] for name in ("max_tokens", "temperature")}
        fields |= {} if cached or not self.is_exact else self.dialect.uncached
        if stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True, **self.dialect.stream_options}}
        text = {"messages": [{"role": "user", "content": prompt}]} if self.path == _CHAT_PATH else {"prompt": prompt}
        return {"model": self.model, **text, **fields}

    async def count(self, text: str) -> int:
        """Tokens of a prompt by the server's own count, from a reply of one token.

        Raises:
            ServerError: it does not tell.
        """
        reply = parse(await self.client.post(self.path, self.body(text, 1, stream=False)))
        if reply.prompt_tokens is None:
            raise UncountedError
        return reply.prompt_tokens


async def connect(client: Client, model: str, eos_ids: Sequence[int], silence_s: float) -> Server:
    """Call the server for the first time.

    Args:
        client: to it.
        model: its name there.
        eos_ids: tokens that end a text, where they are known here.
        silence_s: the longest wait for an event.

    Raises:
        ServerError: it cannot be used, or does not serve the model.
    """
    models, headers = await models_of(client)
    name = served_name(models, model)
    dialect = await dialect_of(client, models, headers)
    told = await told_by(client, dialect, next((each for each in models if each.get("id") == name), {}))
    asked = Server(client, name, dialect, told, eos_ids=tuple(eos_ids))
    errors = []
    for way in _ways(asked):
        try:
            return await _tried(way, replace(patience(silence_s, 2), attempts=1))
        except ServerError as refused:
            if refused.status is None or refused.status in REFUSED_FOR_ALL:
                raise
            if refused.status in BUSY:
                return await _tried(way, patience(silence_s, 2))
            errors.append(refused)
    if errors[0].status == FAULT:
        return await _tried(next(_ways(asked)), patience(silence_s, 2))
    raise errors[0]


async def _tried(way: Server, waits: Patience) -> Server:
    """A way to ask that is answered, and whether the answer counts tokens."""
    prompt: Prompt = [1, 2, 3] if way.takes_ids else "one two three"
    reply = read(await way.client.stream(way.path, encoded(way.body(prompt, 2)), waits))
    return replace(way, counts=None not in (reply.prompt_tokens, reply.completion_tokens))


def _ways(server: Server) -> Iterator[Server]:
    """Ways to ask, the best first."""
    takes_ids = server.dialect.takes_ids
    ids = {None: (True, False), True: (True, False), False: (False,)}[takes_ids]
    exact = (True, False) if server.dialect is UNKNOWN else (True,)
    for path in (_TEXT_PATH, _CHAT_PATH):
        for by_ids in ids if path == _TEXT_PATH else (False,):
            for is_exact in exact:
                yield replace(server, path=path, takes_ids=by_ids, is_exact=is_exact)
