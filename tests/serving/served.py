"""One behaviour of the fake server with what it remembers: the prompts it has seen, and a log of what was asked."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from reply import Reply

if TYPE_CHECKING:
    from behaviour import Behaviour
    from connection import Connection

Log = dict[str, Any]


class Served:
    """A behaviour at work."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.log: list[Log] = []
        self.gets: list[str] = []
        self._prompts: list[list[object]] = []
        self._one = asyncio.Lock()
        self._n_long = 0

    async def complete(self, connection: Connection, body: dict[str, Any], kept: Log) -> None:
        """Answer one completion."""
        how = self.behaviour
        failing = self._failing(body)
        self.log.append(kept)
        if refusal := self._refusal(body, failing):
            kept["status"] = refusal[0]
            connection.error(*refusal)
            return
        prompt = how.prompt(body)
        n_cached = self._cached(prompt, body)
        reply = Reply(how, body, len(prompt), n_cached)
        kept |= {"n_prompt": len(prompt), "n_cached": n_cached, "n_tokens": reply.n_tokens, "sends": []}
        async with self._one if how.serial else contextlib.nullcontext():
            kept["started_ns"] = time.perf_counter_ns()
            if how.ignores_stream or not body.get("stream"):
                await _until(kept["started_ns"], reply.due_s(reply.n_tokens - 1))
                connection.document(200, reply.document())
            else:
                await self._stream(connection, reply, kept, faulty=failing >= 0)
            kept["ended_ns"] = time.perf_counter_ns()

    async def _stream(self, connection: Connection, reply: Reply, kept: Log, *, faulty: bool) -> None:
        fault = self.behaviour.fault if faulty else None
        connection.begin_stream()
        chunks = 0
        for event in reply.events():
            if event.tokens and fault and chunks == self.behaviour.fault_after_chunks:
                await connection.misbehave(fault)
                return
            await _until(kept["started_ns"], event.due_s)
            if event.tokens:
                kept["sends"].append([time.perf_counter_ns(), event.tokens])
            connection.send(event)
            chunks += event.tokens > 0
        connection.end_stream()

    def _failing(self, body: dict[str, Any]) -> int:
        """The number of this completion among those that fail, from 0; negative: it is one that does not."""
        how = self.behaviour
        if how.reply_tokens(body) < how.faulty_from_tokens:
            return -1
        self._n_long += 1
        return self._n_long - 1 - how.healthy_first

    def _refusal(self, body: dict[str, Any], failing: int) -> tuple[int, str, str | None] | None:
        """Status, message and Retry-After."""
        how = self.behaviour
        if how.status != 200 and failing >= 0 and (how.failing is None or failing < how.failing):
            return how.status, how.error_message, how.retry_after
        if body.get("model") not in how.models:
            return 404, f"The model `{body.get('model')}` does not exist.", None
        for field in how.refuses:
            if field in body:
                return 400, f"Unrecognized request argument supplied: {field}", None
        if isinstance(body.get("prompt"), list) and not how.takes_token_ids:
            return 400, "prompt must be a string", None
        if len(how.prompt(body)) + how.reply_tokens(body) > how.context_tokens:
            return 400, f"This model's maximum context length is {how.context_tokens} tokens.", None
        return None

    def _cached(self, prompt: list[object], body: dict[str, Any]) -> int:
        """Of the longest prefix shared with an earlier prompt; the last token is always computed."""
        how = self.behaviour
        if how.always_cached_from is not None:
            return len(prompt) - 2 if len(prompt) >= how.always_cached_from else 0
        if not how.prompt_cache or (how.honours_cache_prompt and body.get("cache_prompt") is False):
            return 0
        longest = max((_shared(prompt, earlier) for earlier in self._prompts), default=0)
        self._prompts.append(prompt)
        return min(longest, len(prompt) - 1)


def _shared(one: list[object], other: list[object]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


async def _until(start_ns: int, after_s: float) -> None:
    left_s = after_s - (time.perf_counter_ns() - start_ns) / 1e9
    if left_s > 0:
        await asyncio.sleep(left_s)
