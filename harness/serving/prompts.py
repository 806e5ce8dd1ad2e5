"""Prompts of exactly so many tokens by the server's own count, each with a beginning that it has not seen."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from backends.openai.errors import ServerError
from harness.workload import token_stream

Prompt = str | list[int]

_STRIDE = 0x9E3779B97F4A7C15  # spreads rounds over all seeds
_SAFE_IDS = 1000  # a vocabulary that nothing tells of has at least so many tokens
_WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state"),
    *("family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company"),
    *("system", "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother"),
    *("area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business"),
    *("issue", "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line"),
    *("end", "member", "law", "car", "city", "name", "team", "minute", "idea", "body", "back", "parent", "face"),
    *("level", "office", "door", "art"),
)
_TAILS = (" a", "s", " I", ".", ",", " 1", "x", "!", " it", "?", "\n", "'")
_HEAD_WORDS = 4  # 80 words in four places: 41 million beginnings
_HEAD_SHARE = 0.6  # of a short prompt, at most so much is the head
_LEAST_GROWTH = 4
_TRIES = 60
_FRESH_TRIES = 200
_DRAWS = 20  # of so many words, before it is tried with one fewer
_MOST_PADDING = 8
_FIRST, _OTHER_FIRST = "A", "Q"  # one token each, as all capitals are
_NEXT_LETTERS = 40

Count = Callable[[str], Awaitable[int]]


class Counter(Protocol):
    """How many tokens the server makes of a text."""

    #: Whether it is asked without filling the prompt cache with the text.
    is_pure: bool

    def __call__(self, text: str) -> Awaitable[int]:
        """Ask it."""


@dataclass(frozen=True)
class Made:
    """The prompts of a round.

    Attributes:
        whole: one for each stream, all of its tokens.
        first: of each, the tokens that are sent before, untimed; empty where there are none.
    """

    whole: list[Prompt]
    first: list[Prompt]


class IdPrompts:
    """Random token ids, other ones in each round.

    Args:
        vocab_size: of the model; None: not known.
        seed: of the run.
        salt: of this call of it: a server may still have the prompts of another.
    """

    def __init__(self, vocab_size: int | None, seed: int, salt: str) -> None:
        self._vocab_size, self._seed = vocab_size or _SAFE_IDS, seed ^ int(salt, 16)

    async def make(self, n_first: int, n_tokens: int, n_streams: int, number: int) -> Made:
        """The prompts of a round.

        Args:
            n_first: tokens that are sent before.
            n_tokens: of each prompt, those included.
            n_streams: prompts.
            number: of the round, 0 for the first.
        """
        ids = token_stream(n_tokens, n_streams, self._vocab_size, (self._seed + number * _STRIDE) % 2**64)
        first: list[Prompt] = [row[:n_first].tolist() for row in ids] if n_first else []
        return Made([row.tolist() for row in ids], first)

    async def shortest(self) -> Prompt:
        """One token."""
        return [token_stream(1, 1, self._vocab_size, self._seed)[0, 0].item()]


@dataclass
class TextPrompts:
    """Texts of common words, fitted to a length by measured feedback.

    A text is found once for each length. Fresh ones differ in their first words, and are taken only where the server
    counts as many tokens there.

    Args:
        count: the server's count.
        seed, salt: as of `IdPrompts`.
    """

    count: Counter
    seed: int
    salt: str
    _fitted: dict[tuple[int, int], tuple[str, str, str]] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)

    async def make(self, n_first: int, n_tokens: int, n_streams: int, number: int) -> Made:
        """As `IdPrompts.make`.

        Raises:
            ServerError: no text has that length.
        """
        choose = random.Random(f"{self.seed} {self.salt} {number} {n_first} {n_tokens}")  # noqa: S311  # no secret
        if (n_first, n_tokens) not in self._fitted:
            self._fitted[n_first, n_tokens] = await self._fit(n_first, n_tokens)
        head, first, rest = self._fitted[n_first, n_tokens]
        heads = [await self._fresh_head(head, first + rest, choose) for _ in range(n_streams)]
        return Made([one + first + rest for one in heads], [one + first for one in heads] if n_first else [])

    async def shortest(self) -> Prompt:
        """One word."""
        return _WORDS[0]

    async def _fit(self, n_first: int, n_tokens: int) -> tuple[str, str, str]:
        """A head; what follows it up to the tokens that are sent before; the rest."""
        choose = random.Random(f"{self.seed} {n_first} {n_tokens}")  # noqa: S311
        head = f"{_FIRST} {choose.choice(_WORDS)}"
        if await self.count(head) > (n_first or n_tokens):
            head = f"{_FIRST} {min(_WORDS, key=len)}"
        for _ in range(_HEAD_WORDS - 1):
            longer = f"{head} {choose.choice(_WORDS)}"
            if await self.count(longer) > _HEAD_SHARE * (n_first or n_tokens):
                break
            head = longer
        first = await self._grown(head, n_first, choose) if n_first else head
        whole = await self._grown(first, n_tokens, choose)
        return head, first[len(head) :], whole[len(first) :]

    async def _grown(self, text: str, n_tokens: int, choose: random.Random) -> str:
        """The text with words after it, until the server counts so many tokens."""
        count, per_word = await self.count(text), 1.0
        if count > n_tokens:
            raise ServerError(
                f"its shortest prompt has {count} tokens by its own count, more than the {n_tokens} asked"
            )
        for _ in range(_TRIES):
            n_words = int((n_tokens - count) / per_word)
            if n_tokens - count < _LEAST_GROWTH or not n_words:
                break
            longer = f"{text} {' '.join(choose.choices(_WORDS, k=n_words))}"
            grown = await self.count(longer)
            per_word = max((grown - count) / n_words, 0.25)
            if grown <= n_tokens:
                text, count = longer, grown
        exact = await self._padded(text, count, n_tokens)
        if exact is None:
            raise ServerError(
                f"no text could be found whose tokens are exactly {n_tokens} by its own count, the nearest has {count}"
            )
        return exact

    async def _padded(self, text: str, count: int, n_tokens: int, counted: Count | None = None) -> str | None:
        """The text with the smallest of endings after it, until the server counts so many tokens."""
        for attempt in range(_TRIES):
            if count >= n_tokens:
                break
            longer = text + _TAILS[attempt % len(_TAILS)]
            if count < (grown := await (counted or self.count)(longer)) <= n_tokens:
                text, count = longer, grown
        return text if count == n_tokens else None

    async def _fresh_head(self, head: str, body: str, choose: random.Random) -> str:
        """Other words in place of a head, of as many tokens where they meet the body."""

        async def counted(text: str) -> int:
            if self.count.is_pure:
                return await self.count(text + body)
            # A prompt that is counted by computing it would be in the prompt cache: a part of it, which begins with
            # another letter, is not, and its words have the same neighbours.
            return await self.count(_OTHER_FIRST + text.removeprefix(_FIRST) + body[:_NEXT_LETTERS])

        wanted, n_words = await counted(head), head.count(" ")
        for attempt in range(_FRESH_TRIES):
            # Where these words happened to be short ones, as many others are not found again: fewer ones are.
            other = " ".join([_FIRST, *choose.choices(_WORDS, k=max(n_words - attempt // _DRAWS, 1))])
            count = await counted(other)
            if not 0 <= wanted - count <= _MOST_PADDING:
                continue
            exact = await self._padded(other, count, wanted, counted)
            is_new = exact not in self._used or attempt >= _FRESH_TRIES // 2  # there may be no more
            if exact is not None and is_new:
                self._used.add(exact)
                return exact
        raise ServerError("no fresh beginning of the same number of tokens could be found for the prompt")


Prompts = IdPrompts | TextPrompts
