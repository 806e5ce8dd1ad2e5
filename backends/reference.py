"""Attention as a textbook writes it: the judge of every engine's, and of every KV cache.

Nothing here is fast. All keys and values lie in two arrays, and a query sees those up to its own position. A KV cache
is then nothing but the first rows of these arrays, kept from one step to the next: `attention` of the last query
over them is one row of `attention` of all queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def attention_weights(queries: Array, keys: Array, window: int | None = None) -> Array:
    """How much each query takes from each token: causal, and a softmax over the tokens that it sees.

    Args:
        queries: `[batch, heads, n, head_dim]`, of the last `n` tokens of the context.
        keys: `[batch, kv_heads, context, head_dim]`; `heads / kv_heads` queries in a row share a key head.
        window: how many of the last tokens a query sees, its own included; None: all.

    Returns:
        `[batch, heads, n, context]`; each row sums to one.
    """
    n, context, head_dim = queries.shape[2], keys.shape[2], queries.shape[3]
    scores = queries @ _for_each_head(keys, queries).swapaxes(2, 3) / np.sqrt(head_dim)
    ages = np.arange(context - n, context)[:, None] - np.arange(context)
    seen = (ages >= 0) & (ages < (context if window is None else window))
    scores = np.where(seen, scores, -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights


def attention(queries: Array, keys: Array, values: Array, window: int | None = None) -> Array:
    """The mean of the values that each query sees, by `attention_weights`.

    Args:
        queries: `[batch, heads, n, head_dim]`.
        keys: `[batch, kv_heads, context, head_dim]`.
        values: `[batch, kv_heads, context, value_dim]`.
        window: as above.

    Returns:
        `[batch, heads, n, value_dim]`.
    """
    output: Array = attention_weights(queries, keys, window) @ _for_each_head(values, queries)
    return output


def _for_each_head(shared: Array, queries: Array) -> Array:
    """`[batch, kv_heads, …]` -> `[batch, heads, …]`: each key or value head once for every query head that uses it."""
    return shared.repeat(queries.shape[1] // shared.shape[1], axis=1)
