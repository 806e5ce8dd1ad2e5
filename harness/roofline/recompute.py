"""Decode without a KV cache: what each step computes again, and how fast that could be at best.

With a cache a step computes one new token, which looks at the `n` tokens so far: `1 × n` scores a head and layer.
Without one it runs all `n` through every layer again: `n × n` scores, of which a causal mask uses half. Over a text of
`N` tokens these add up to about `N² / 2` and `N³ / 3`; the weights work on `1` and on `n` tokens a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.roofline.ceiling import prefill_ceiling
from harness.roofline.checks import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.roofline.ceiling import Bound, Share

_MOST_LENGTHS = 256  # that are worked out; times between them lie on a line to a thousandth


@dataclass(frozen=True)
class RecomputeCeiling:
    """The decode rate without a KV cache that the memories and matrix rates allow."""

    tok_s: float  # all sequences together, over all steps
    bound: Bound  # what most steps wait for


def score_pairs(n_tokens: int, *, kv_cache: bool) -> int:
    """Scores of a head and layer in a step that ends at `n_tokens`: `1 × n`, or `n × n` without a cache."""
    return n_tokens if kv_cache else n_tokens**2


def text_score_pairs(prompt: int, n_outputs: int, *, kv_cache: bool) -> int:
    """Scores of a head and layer for a whole text: the prompt's prefill, which gives the first token, and the steps."""
    steps = range(prompt + 1, prompt + n_outputs)
    return prompt**2 + sum(score_pairs(n, kv_cache=kv_cache) for n in steps)


def text_tokens(prompt: int, n_outputs: int, *, kv_cache: bool) -> int:
    """Tokens that pass through the weights for a whole text: the prompt, and one or the whole prefix a step."""
    return prompt + sum(1 if kv_cache else n for n in range(prompt + 1, prompt + n_outputs))


def recompute_ceiling(shares: Sequence[Share], *, first: int, n_steps: int, batch: int = 1) -> RecomputeCeiling | None:
    """The rate of steps that are each a prefill of their whole prefix: `batch · n_steps / Σ t`.

    Args:
        shares: every part of every layer, and the output layer, on exactly one memory.
        first: tokens of the first step's prefix; each next one is a token longer.
        n_steps: steps that are timed.
        batch: sequences decoded at once.

    Returns:
        The ceiling; None where a memory's `flops_s` is not known.

    Raises:
        ValueError: a number is out of range, or a part of a layer lies on no memory or on two.
    """
    require("first", first, 1, 2**30)
    require("n_steps", n_steps, 1, 10**7)
    lengths = np.unique(np.linspace(first, first + n_steps - 1, min(n_steps, _MOST_LENGTHS)).astype(int))
    rates = [prefill_ceiling(shares, prompt=int(n), batch=batch) for n in lengths]
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        return None
    seconds = np.interp(np.arange(first, first + n_steps), lengths, batch * lengths / np.array(known))
    reading_s = sum(share.streamed_bytes(batch) / share.memory.read_bytes_s for share in shares)
    return RecomputeCeiling(
        tok_s=batch * n_steps / float(seconds.sum()),
        bound="compute" if np.median(seconds) > reading_s * (1 + 1e-9) else "memory",
    )
