"""What one request brought: when its tokens arrived, and the server's own counts. Pure arithmetic over a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from backends.openai.chunk import DONE, Chunk, parse
from backends.openai.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from backends.openai.client import Recording

T = TypeVar("T")


@dataclass(frozen=True)
class Reply:
    """One request's tokens in time.

    Attributes:
        sent_ns: as in the recording.
        arrivals_ns: of the chunks that carry generated tokens.
        counted: the server's count of tokens with each of these chunks; None where it tells only their sum.
        finish_reason: None: the stream ended without one.
        prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens: the server's counts; None: not told.
        reasoning_chunks: chunks that carry thoughts.
        text: thoughts and answer.
        attempts: as in the recording.
    """

    sent_ns: int
    arrivals_ns: NDArray[np.int64]
    counted: NDArray[np.int64] | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    reasoning_chunks: int
    text: str
    attempts: int

    @property
    def ttft_s(self) -> float:
        """Request sent to the first chunk that carries a generated token."""
        return float(self.arrivals_ns[0] - self.sent_ns) / 1e9

    @property
    def decode_s(self) -> float:
        """First to last chunk that carries tokens."""
        return float(self.arrivals_ns[-1] - self.arrivals_ns[0]) / 1e9

    def tokens_at(self, n_tokens: int) -> NDArray[np.float64]:
        """Tokens that had arrived with each chunk; where the server does not tell, each chunk has as many.

        Args:
            n_tokens: of the whole reply.
        """
        if self.counted is not None:
            return self.counted.astype(float)
        return np.linspace(0, n_tokens, len(self.arrivals_ns) + 1, dtype=np.float64)[1:]

    def shows_single_tokens(self, n_tokens: int) -> bool:
        """Whether each chunk carries one token, so that the time between two is an ITL."""
        if self.counted is not None:
            return bool((np.diff(self.counted, prepend=0) == 1).all())
        return len(self.arrivals_ns) == n_tokens


def read(recording: Recording) -> Reply:
    """Read a recording.

    Raises:
        ServerError: it holds no token, an error, or something that is no chunk; or it broke off.
    """
    chunks = [parse(data) for data in recording.events if data != DONE]
    stamps = [stamp for stamp, data in zip(recording.stamps_ns, recording.events, strict=True) if data != DONE]
    running = [chunk.completion_tokens for chunk in chunks if chunk.has_choice and chunk.completion_tokens is not None]
    tells_all_along = len(running) > 1
    carrying = _carrying(chunks, by_count=tells_all_along)
    finish = _last(chunk.finish_reason for chunk in chunks)
    if not any(carrying) and finish == "length":
        # A token that is no whole character, or has no text at all, was there by the end of the answer.
        carrying = [chunk.finish_reason is not None for chunk in chunks]
    n_carrying = sum(carrying)
    if finish is None and DONE not in recording.events:
        raise ServerError(f"the stream broke off without an end; chunks with tokens until then: {n_carrying}")
    if not n_carrying:
        raise ServerError(f"the stream ended without a token (finish_reason {finish})")
    counted = [chunk.completion_tokens for chunk, carries in zip(chunks, carrying, strict=True) if carries]
    is_whole = tells_all_along and None not in counted
    return Reply(
        sent_ns=recording.sent_ns,
        arrivals_ns=np.array([stamp for stamp, carries in zip(stamps, carrying, strict=True) if carries], np.int64),
        counted=np.array(counted, np.int64) if is_whole else None,
        finish_reason=finish,
        prompt_tokens=_last(chunk.prompt_tokens for chunk in chunks),
        completion_tokens=_last(chunk.completion_tokens for chunk in chunks),
        cached_tokens=_last(chunk.cached_tokens for chunk in chunks),
        reasoning_tokens=_last(chunk.reasoning_tokens for chunk in chunks),
        reasoning_chunks=sum(bool(chunk.reasoning) for chunk in chunks),
        text="".join(chunk.reasoning + chunk.text for chunk in chunks),
        attempts=recording.attempts,
    )


def _carrying(chunks: Sequence[Chunk], *, by_count: bool) -> list[bool]:
    """Which chunks carry a token: text or thoughts in it, or a count that grew (a token may be no whole character)."""
    carrying, so_far = [], 0
    for chunk in chunks:
        count = chunk.completion_tokens if by_count and chunk.has_choice else None
        carrying.append(bool(chunk.text or chunk.reasoning) or (count or 0) > so_far)
        so_far = max(so_far, count or 0)
    return carrying


def _last(values: Iterable[T | None]) -> T | None:
    return next((value for value in reversed([*values]) if value is not None), None)
