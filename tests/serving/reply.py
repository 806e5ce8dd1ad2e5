"""What the fake server sends for one request, and when: a plan of server-sent events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from behaviour import Behaviour


@dataclass(frozen=True)
class Event:
    """Bytes due at a time since the request, and the number of tokens in them."""

    due_s: float
    data: bytes
    tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """One request's answer.

    Args:
        behaviour, body: who answers, and what was asked.
        n_prompt, n_cached: the prompt's tokens, and those of them that are not computed again.
    """

    behaviour: Behaviour
    body: dict[str, Any]
    n_prompt: int
    n_cached: int

    @property
    def chat(self) -> bool:
        """Asked on /v1/chat/completions."""
        return "messages" in self.body

    @property
    def n_tokens(self) -> int:
        """Tokens of the reply."""
        return self.behaviour.reply_tokens(self.body)

    @property
    def ttft_s(self) -> float:
        """From the request to the first token."""
        return self.behaviour.ttft_s + self.behaviour.prefill_s_per_token * (self.n_prompt - self.n_cached)

    def due_s(self, token: int) -> float:
        """When token number `token`, from 0, leaves."""
        return self.ttft_s + token * self.behaviour.itl_s

    def events(self) -> Iterator[Event]:
        """The whole stream in order."""
        how = self.behaviour
        if how.role_first and self.chat:
            yield Event(0, self._chunk({"role": "assistant", "content": ""}))
        sent = 0
        size = self.n_tokens if how.whole_reply else how.tokens_per_chunk
        for first in range(0, self.n_tokens, size):
            last = min(first + size, self.n_tokens) - 1
            due, end = self.due_s(last), last + 1 == self.n_tokens
            if how.empty_deltas:
                yield Event(due - how.itl_s / 2, self._chunk(self._text("")))
            if how.keep_alives:
                yield Event(due - how.itl_s / 2, b": keep-alive\n\n")
            for delta, tokens in self._deltas(first, last + 1):
                finish = self.finish_reason if end and not how.finish_apart else None
                sent += tokens
                yield Event(due, self._chunk(delta, finish, sent), tokens)
        end_s = self.due_s(self.n_tokens - 1)
        if how.finish_apart:
            yield Event(end_s, self._chunk({} if self.chat else self._text(""), self.finish_reason))
        if how.usage and self._asked("include_usage"):
            yield Event(end_s, _sse({**self._head(), "choices": [], "usage": self.usage()}))
        yield Event(end_s, b"data: [DONE]\n\n")

    def document(self) -> bytes:
        """The answer to a request that is no stream."""
        text = self.behaviour.token_text * self.n_tokens
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **said, "finish_reason": self.finish_reason}
        usage = {"usage": self.usage()} if self.behaviour.usage_of_documents else {}
        return json.dumps({**self._head(), "choices": [choice], **usage}).encode()

    @property
    def finish_reason(self) -> str:
        """Why it ends."""
        return "stop" if self.n_tokens == self.behaviour.eos_after else "length"

    def usage(self) -> dict[str, Any]:
        """The counts as OpenAI's API has them."""
        counts: dict[str, Any] = {"prompt_tokens": self.n_prompt, "completion_tokens": self.n_tokens}
        counts["total_tokens"] = self.n_prompt + self.n_tokens
        if self.behaviour.tells_cached:
            counts["prompt_tokens_details"] = {"cached_tokens": self.n_cached}
        if reasoning := self._n_reasoning():
            counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return counts

    def _asked(self, option: str) -> bool:
        return bool((self.body.get("stream_options") or {}).get(option))

    def _n_reasoning(self) -> int:
        return min(self.behaviour.reasoning_tokens, self.n_tokens) if self.chat else 0

    def _deltas(self, first: int, end: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Tokens first..end-1: those of the reasoning and those of the answer are never in one delta."""
        border = min(max(first, self._n_reasoning()), end)
        text = self.behaviour.token_text
        if border > first:
            yield {self.behaviour.reasoning_field: text * (border - first)}, border - first
        if end > border:
            yield self._text(text * (end - border)), end - border

    def _text(self, text: str) -> dict[str, Any]:
        return {"content": text} if self.chat else {"text": text}

    def _head(self) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {"id": "fake", "object": kind, "created": 0, "model": self.body.get("model", "")}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None, sent: int | None = None) -> bytes:
        said = {"delta": delta} if self.chat else delta
        document = {**self._head(), "choices": [{"index": 0, **said, "finish_reason": finish_reason}]}
        if self._asked("continuous_usage_stats") and self.behaviour.continuous_usage and sent is not None:
            document["usage"] = {**self.usage(), "completion_tokens": sent}
        if finish_reason and self.behaviour.timings:
            document["timings"] = self._timings()
        return _sse(document)

    def _timings(self) -> dict[str, float]:
        """What llama-server tells of a request."""
        computed = self.n_prompt - self.n_cached
        return {
            "cache_n": self.n_cached,
            "prompt_n": computed,
            "prompt_ms": 1e3 * self.ttft_s,
            "predicted_n": self.n_tokens,
            "predicted_ms": 1e3 * self.behaviour.itl_s * self.n_tokens,
        }


def _sse(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"
