"""Whether a reply did exactly the work that was asked, without help from a prompt cache. What it did else is no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.openai.errors import ServerError

if TYPE_CHECKING:
    from backends.openai.dialects import Dialect
    from harness.serving.reply import Reply

LEAST_TO_COMPARE = 64  # tokens of a prompt, for each that the shortest has, whose TTFT tells more than the latency
_FEW_CACHED = 16  # a block of vLLM's; half of a shorter prompt; and 1 in so many tokens of a longer one:
_FEW_SHARE = 20
_TOO_SHORT = 0.7  # of the TTFT of a quarter of the prompt


def check_lengths(reply: Reply, dialect: Dialect, n_prompt: int, n_gen: int) -> None:
    """The server's own counts; where its stream has none, that it stopped for having reached `max_tokens`.

    Raises:
        ServerError: the work was another.
    """
    got, reason = reply.completion_tokens, reply.finish_reason
    if got is None and reason != "length":
        raise ServerError(
            f"short reply: fewer than {n_gen} tokens, finish_reason {reason}, {len(reply.arrivals_ns)} chunks"
            f"{_because(dialect)}"
        )
    if got is not None and got < n_gen:
        raise ServerError(f"short reply: {got} of {n_gen} tokens, finish_reason {reason}{_because(dialect)}")
    if got is not None and got > n_gen:
        raise ServerError(f"long reply: {got} tokens where {n_gen} were asked")
    if reply.prompt_tokens not in (None, n_prompt):
        raise ServerError(f"the server counts {reply.prompt_tokens} prompt tokens where {n_prompt} were asked")


def check_uncached(reply: Reply, n_prompt: int, *, n_first: int, shortest: int, reference_s: float) -> None:
    """That the prompt was computed.

    Args:
        reply: to look at.
        n_prompt: tokens of its prompt.
        n_first: of these, those that are meant to be cached.
        shortest: tokens that every prompt begins with, as those of a chat template, and one more.
        reference_s: TTFT of a quarter of the prompt, where the server does not tell what it cached, and where it is
            prefill for the most part; else 0.

    Raises:
        ServerError: a prompt cache held more of it.
    """
    cached = reply.cached_tokens
    new = n_prompt - n_first
    few = n_first + shortest + min(max(_FEW_CACHED, new // _FEW_SHARE), new // 2)
    if cached is not None and cached > few:
        raise ServerError(
            f"the server's prompt cache held {cached} of {n_prompt} prompt tokens, though each prompt is new: its TTFT "
            "is none of that prompt; turn the cache off, or measure it with --prefix-cache"
        )
    if cached is None and is_too_short(reply.ttft_s, reference_s):
        raise ServerError(
            f"TTFT too short: {1e3 * reply.ttft_s:.3g} ms for {n_prompt} tokens, where {n_prompt // 4} tokens took "
            f"{1e3 * reference_s:.3g} ms: a prompt cache must have held them, though each prompt is new"
        )


def is_too_short(ttft_s: float, reference_s: float) -> bool:
    """Whether a prompt took less than a quarter of it, beyond what chance makes.

    Args:
        ttft_s: of the prompt.
        reference_s: of a quarter of it; 0: not known.
    """
    return ttft_s < _TOO_SHORT * reference_s


def _because(dialect: Dialect) -> str:
    return f"; {dialect.lacks}" if dialect.lacks else ""
