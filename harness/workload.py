"""The work itself: a case, the grid of cases that the command line names, and the token stream that feeds it."""

from __future__ import annotations

import hashlib
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from harness.errors import UserError
from results.schema import CASE

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from numpy.typing import NDArray

# One item of a list as llama-bench writes it: 512, 0-8192, 0-8192+1024, 512-4096*2. Only -ngl may be negative.
_RANGE = re.compile(r"(?P<first>-?\d+)(?:-(?P<last>\d+)(?:(?P<op>[+*])(?P<step>\d+))?)?")
_MOST_VALUES = 1000

KvCache = Literal["on", "off", "prefix"]
KV_CACHES: tuple[KvCache, ...] = get_args(KvCache)
_CACHE_NAMES = {"on": "", "off": " no cache", "prefix": " reused"}


@dataclass(frozen=True, order=True)
class Case:
    """One unit of work. Every engine does exactly this, on the same token ids.

    Attributes:
        n_depth: tokens already in the KV cache, untimed, before the timed work starts.
        n_prompt: tokens of the timed prefill; 0: decode only.
        n_gen: tokens that come out; 0: prefill only. With a prompt, the first of them is the prefill's.
        batch: sequences at once.
        kv_cache: "on"; "off": every step runs its whole prefix through all layers again; "prefix": the depth is what
            an earlier text in the cache has in common with this one, and the time includes cutting the cache there.
        prompt_file: name of the text whose tokens are read; "": random ids.
    """

    n_depth: int
    n_prompt: int
    n_gen: int
    batch: int = 1
    kv_cache: KvCache = "on"
    prompt_file: str = ""

    @property
    def decode_start(self) -> int:
        """Context length at the first timed decode step; rates are compared only where this is equal."""
        return self.n_depth + self.n_prompt

    @property
    def context_tokens(self) -> int:
        """Tokens a sequence's KV cache must hold room for."""
        return self.n_depth + self.n_prompt + self.n_gen

    @property
    def n_steps(self) -> int:
        """Decode steps: the prefill yields the first token where there is a prompt."""
        return max(self.n_gen - 1, 0) if self.n_prompt else self.n_gen

    @property
    def n_outputs(self) -> int:
        """Tokens that come out: a prefill yields one even where none was asked for."""
        return self.n_steps + (1 if self.n_prompt else 0)

    def __str__(self) -> str:
        """As the command line would name it: `p512 n128 d0`."""
        text = f"p{self.n_prompt} n{self.n_gen} d{self.n_depth}"
        sequences = "" if self.batch == 1 else f" B{self.batch}"
        source = f" of {self.prompt_file}" if self.prompt_file else ""
        return text + sequences + _CACHE_NAMES[self.kv_cache] + source


def cases_of_rows(rows: pd.DataFrame) -> list[Case]:
    """What each row of `results.read.read` was asked to measure."""
    cells = rows[CASE].assign(prompt_file=rows["prompt_file"].fillna(""))
    return [Case(*row) for row in cells.itertuples(index=False)]


def case_columns(case: Case) -> dict[str, Any]:
    """What a row tells of a case."""
    return {
        "n_depth": case.n_depth,
        "n_prompt": case.n_prompt,
        "n_gen": case.n_gen,
        "decode_start": case.decode_start if case.n_gen else None,
        "batch": case.batch,
        "kv_cache": case.kv_cache,
        "prompt_file": case.prompt_file or None,
    }


Due = dict[Case, int]
"""The repetitions that each case still needs; a launch takes off what it measured or gave up."""


def parse_ints(text: str, *, flag: str, least: int = 0) -> tuple[int, ...]:
    """Read a list in llama-bench's syntax: `512,1024`, `0-8192+1024`, `512-4096*2`.

    Args:
        text: the list.
        flag: the command-line flag, for the error.
        least: the smallest value that makes sense.

    Raises:
        UserError: not a list of whole numbers, a value below `least`, or a range that never ends.
    """
    values: list[int] = []
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise UserError(
                f"{flag} {text}: {item.strip()!r} is not a number or a range "
                "(write 512, 512,1024, 0-8192+1024 or 512-4096*2)"
            )
        values.extend(_expand(match, flag=flag, text=text, room=_MOST_VALUES - len(values)))
    if (smallest := min(values)) < least:
        raise UserError(f"{flag} {text}: {smallest} is too small, the least is {least}")
    return tuple(dict.fromkeys(values))


def _expand(match: re.Match[str], *, flag: str, text: str, room: int) -> list[int]:
    value, step = int(match["first"]), int(match["step"] or 1)
    last = int(match["last"] or value)
    multiply = match["op"] == "*"
    if last < value or step == 0 or (multiply and (step == 1 or value <= 0)):
        raise UserError(f"{flag} {text}: the range {match[0]} never reaches its end")
    values: list[int] = []
    while value <= last:
        if len(values) == room:
            raise UserError(f"{flag} {text}: more than {_MOST_VALUES} values; give a larger step")
        values.append(value)
        value = value * step if multiply else value + step
    return values


def grid(
    depths: Iterable[int],
    prompts: Iterable[int],
    gens: Iterable[int],
    batches: Iterable[int],
    kv_caches: Iterable[KvCache] = ("on",),
    prompt_file: str = "",
) -> tuple[Case, ...]:
    """Every combination, in the order given; the empty case (no prompt, no generation) is left out.

    Raises:
        UserError: nothing is left, or a case cannot do with its cache what it is to do.
    """
    cases = tuple(
        Case(depth, prompt, gen, batch, kv_cache, prompt_file)
        for kv_cache, batch, depth, prompt, gen in itertools.product(kv_caches, batches, depths, prompts, gens)
        if prompt or gen
    )
    if not cases:
        raise UserError("-p 0 with -n 0 leaves nothing to measure; give a prompt (-p) or tokens to generate (-n)")
    for case in cases:
        _check_kv_cache(case)
    return cases


def _check_kv_cache(case: Case) -> None:
    if case.kv_cache == "off" and case.n_depth:
        raise UserError(
            f"--kv-cache off with -d {case.n_depth}: without a cache there are no tokens in it; "
            f"give them as the prompt, -p {case.n_depth + case.n_prompt}"
        )
    if case.kv_cache == "prefix" and not case.n_prompt:
        raise UserError(
            "--kv-cache prefix with -p 0: a prefix as long as the prompt leaves nothing to prefill; -d is the prefix "
            "that is kept, -p the tokens after it, at least 1"
        )


def token_stream(n_tokens: int, batch: int, vocab_size: int, seed: int) -> NDArray[np.int32]:
    """Token ids that every engine and machine draws alike; a longer stream begins with the shorter one.

    The bits come straight from Philox, whose stream numpy keeps for ever; `Generator.integers` has no such promise.

    Returns:
        `[batch, n_tokens]` int32, uniform over the vocabulary.
    """
    rows = [
        np.random.Philox(key=np.array([seed, sequence], dtype=np.uint64)).random_raw(n_tokens)
        for sequence in range(batch)
    ]
    return (np.stack(rows) % np.uint64(vocab_size)).astype(np.int32)


def text_stream(ids: NDArray[np.int32], n_tokens: int, batch: int) -> NDArray[np.int32]:
    """A text's tokens as each sequence reads them, over and over where it is too short.

    Sequence i of B begins at token i · n / B of the n, so that no two begin alike.

    Args:
        ids: `[n]`, the whole text's, at least `batch`.
        n_tokens: that each sequence reads.
        batch: sequences.

    Returns:
        `[batch, n_tokens]` int32.
    """
    starts = np.arange(batch) * len(ids) // batch
    places = (starts[:, np.newaxis] + np.arange(n_tokens)) % len(ids)
    stream: NDArray[np.int32] = ids[places]
    return stream


def sha256(ids: NDArray[np.int32]) -> str:
    """SHA-256 of token ids: their shape, then their little-endian bytes, row by row."""
    digest = hashlib.sha256(repr(ids.shape).encode())
    digest.update(np.ascontiguousarray(ids, dtype="<i4").tobytes())
    return digest.hexdigest()
