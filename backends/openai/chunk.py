"""One chunk of a streamed reply, or a whole reply, read from its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backends.openai.body import parsed
from backends.openai.errors import ServerError, told

DONE = "[DONE]"
"""The event that ends a stream."""

_MOST = 2**53  # what any reader of JSON and of a row can hold


@dataclass(frozen=True)
class Chunk:
    """What one event says. A count is None where it says nothing of it.

    Attributes:
        text: of the answer.
        reasoning: of the thoughts before it.
        finish_reason: "length", "stop", …, in the event that ends the answer.
        has_choice: it speaks of the answer; a chunk with counts alone does not.
        prompt_tokens, completion_tokens: so far.
        cached_tokens: of the prompt, that the server had in its cache.
        reasoning_tokens: of the completion.
    """

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    has_choice: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


def parse(data: str) -> Chunk:
    """Read an event's data, or the body of a reply that is not streamed.

    Raises:
        ServerError: it is no JSON object, or an error.
    """
    document = parsed(data)
    if not isinstance(document, dict):
        raise ServerError(f"the server sends {data[:60]!r} in place of a JSON object")
    if document.get("error"):
        raise ServerError(f"the server reports an error in the stream: {told(data)}")
    return Chunk(**_answer(document), **_counts(document))


def _answer(document: dict[str, Any]) -> dict[str, Any]:
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return {}
    said = next((choice[key] for key in ("delta", "message") if isinstance(choice.get(key), dict)), choice)
    reason = choice.get("finish_reason")
    return {
        "text": _text(said, "text", "content"),
        "reasoning": _text(said, "reasoning_content", "reasoning"),
        "finish_reason": reason if isinstance(reason, str) else None,
        "has_choice": True,
    }


def _text(said: dict[str, Any], *keys: str) -> str:
    return next((said[key] for key in keys if isinstance(said.get(key), str)), "")


def _counts(document: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's `usage`; llama.cpp's `timings` where there is none."""
    usage, timings = document.get("usage"), document.get("timings")
    if isinstance(usage, dict):
        cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
        return {
            "prompt_tokens": _count(usage, "prompt_tokens"),
            "completion_tokens": _count(usage, "completion_tokens"),
            "cached_tokens": _count(timings, "cache_n") if cached is None else cached,
            "reasoning_tokens": _count(usage.get("completion_tokens_details"), "reasoning_tokens"),
        }
    if isinstance(timings, dict):
        computed, cached = _count(timings, "prompt_n"), _count(timings, "cache_n")
        return {
            "prompt_tokens": None if computed is None else computed + (cached or 0),
            "completion_tokens": _count(timings, "predicted_n"),
            "cached_tokens": cached,
        }
    return {}


def _count(counts: object, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None
