"""Whether a reply did exactly the work that was asked, without help from a prompt cache. What it did else is no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.openai.errors import ServerError
from results.amounts import counted, significant

if TYPE_CHECKING:
    from backends.openai.dialects import Dialect
    from harness.serving.reply import Reply

LEAST_PREFILL_S = 0.02  # shorter differences of TTFTs tell nothing
LEAST_TO_COMPARE = 64  # tokens of a prompt, for each that the shortest has, whose TTFT tells more than the latency
_FEW_CACHED = 16  # a block of vLLM's; half of a shorter prompt; and 1 in so many tokens of a longer one:
_FEW_SHARE = 20
_TOO_SHORT = 0.7  # of the TTFT of a quarter of the prompt
_SAVING_SHOWS = 3  # a TTFT of at most so many times what a cache would save of it: whether it did is seen


def check_lengths(reply: Reply, dialect: Dialect, n_prompt: int, n_gen: int) -> None:
    """The server's own counts; where its stream has none, that it stopped for having reached `max_tokens`.

    Raises:
        ServerError: the work was another.
    """
    got, reason = reply.completion_tokens, reply.finish_reason
    if got is None and reason != "length":
        raise ServerError(
            f"short reply: fewer than {counted(n_gen, 'token')}, finish_reason {reason}, "
            f"{counted(len(reply.arrivals_ns), 'chunk')}{_because(dialect)}"
        )
    if got is not None and got < n_gen:
        raise ServerError(f"short reply: {got} of {counted(n_gen, 'token')}, finish_reason {reason}{_because(dialect)}")
    if got is not None and got > n_gen:
        raise ServerError(f"long reply: {counted(got, 'token')} where {n_gen} were asked")
    if reply.prompt_tokens not in (None, n_prompt):
        raise ServerError(
            f"the server counts {counted(reply.prompt_tokens, 'prompt token')} where {n_prompt} were asked"
        )


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
            f"the server's prompt cache held {cached} of {counted(n_prompt, 'prompt token')}, though each prompt is "
            "new: its TTFT is none of that prompt; turn the cache off, or measure it with --prefix-cache"
        )
    if cached is None and is_too_short(reply.ttft_s, reference_s):
        raise ServerError(
            f"TTFT too short: {significant(1e3 * reply.ttft_s)} ms for {n_prompt} tokens, where {n_prompt // 4} took "
            f"{significant(1e3 * reference_s)} ms: a prompt cache must have held them, though each prompt is new"
        )


def is_too_short(ttft_s: float, reference_s: float) -> bool:
    """Whether a prompt took less than a quarter of it, beyond what chance makes.

    Args:
        ttft_s: of the prompt.
        reference_s: of a quarter of it; 0: not known.
    """
    return ttft_s < _TOO_SHORT * reference_s


def check_kept(ttft_s: float, whole_s: float, idle_s: float, n_first: int, n_prompt: int) -> bool:
    """By its TTFT, that the beginning of a prompt was kept, where the server does not tell.

    Args:
        ttft_s: of the prompt.
        whole_s: of a new one of that length.
        idle_s: of the shortest.
        n_first: tokens that are meant to be cached.
        n_prompt: tokens of the prompt, those included.

    Returns:
        False: too little of a TTFT is prefill of those tokens for it to show.

    Raises:
        ServerError: less than half of the time that they take was saved.
    """
    saved_s = (whole_s - idle_s) * n_first / n_prompt
    if saved_s < LEAST_PREFILL_S or whole_s > _SAVING_SHOWS * saved_s:
        return False
    if ttft_s > whole_s - saved_s / 2:
        raise ServerError(
            f"the prompt cache did not help: TTFT {significant(1e3 * ttft_s)} ms after {n_first} of "
            f"{counted(n_prompt, 'token')} were sent before, and {significant(1e3 * whole_s)} ms for a new prompt of "
            f"{n_prompt}: it is off, or did not keep them"
        )
    return True


def _because(dialect: Dialect) -> str:
    return f"; {dialect.lacks}" if dialect.lacks else ""
