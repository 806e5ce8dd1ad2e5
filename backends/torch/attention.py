"""The KV cache and the attention function that transformers' models are given here.

transformers' own static cache attends over its whole allocation, and builds a mask in every forward pass to hide
the part that is still empty; its dynamic cache copies itself at every step. Here a cache is allocated once and
handed out as a view that ends at the current length, so that a step reads the context and nothing else, and needs
no mask. A step inside a CUDA graph cannot change its shapes: there the whole buffer is read, under one mask that
all layers share.

transformers builds no mask of its own for an attention function that it does not know, so `attend` decides.

Shapes: queries `[batch, heads, n, head_dim]`, keys and values `[batch, kv_heads, context, head_dim]`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from backends.base import BackendError
from backends.torch.softcap import attend_capped

ATTENTION = "tokenroof"
"""The name under which transformers knows `attend`."""

SPLIT = 128
"""Tokens of context in one slice of the masked attention; the capacity of such a cache is a multiple of it."""


class KvCache(Cache):
    """Keys and values of every layer, allocated at a layer's first use and never moved again.

    Attributes:
        capacity: Tokens a sequence that it has room for.
        length: Tokens a sequence that it holds; whoever runs a forward pass advances it afterwards.
        slot: None, or an int64 tensor `[1]` on the device that says where the next token goes. While it is set,
            `length` is not looked at and the whole buffer is handed out: the shapes of a step are then fixed.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(layers=[])
        self.capacity = capacity
        self.length = 0
        self.slot: torch.Tensor | None = None
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    @property
    def past(self) -> KvCache:
        """What the model is given."""
        return self

    @property
    def allocated_tokens(self) -> int:
        """Tokens a sequence for which there is memory: all from the first one on."""
        return self.capacity

    @property
    def n_bytes(self) -> int:
        """Of its tensors."""
        return sum(buffer.nbytes for buffer in self._keys + self._values)

    def cut(self, keep: int) -> int:
        """Cuts anywhere: every layer keeps its whole context, also one with a sliding window."""
        self.length = min(keep, self.length)
        return self.length

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values, and return those to attend to."""
        if layer_idx == len(self._keys):
            self._keys.append(self._allocate(key_states))
            self._values.append(self._allocate(value_states))
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        if self.slot is not None:
            keys.index_copy_(2, self.slot, key_states)
            values.index_copy_(2, self.slot, value_states)
            return keys, values
        n = key_states.shape[2]
        keys.narrow(2, self.length, n).copy_(key_states)
        values.narrow(2, self.length, n).copy_(value_states)
        return keys.narrow(2, 0, self.length + n), values.narrow(2, 0, self.length + n)

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002  (transformers' signature)
        """Tokens that it holds."""
        return self.length

    def _allocate(self, states: torch.Tensor) -> torch.Tensor:
        # Zeros, not empty: pages are touched before any timing, and what is masked out must not be NaN.
        batch, heads, _, head_dim = states.shape
        return states.new_zeros(batch, heads, self.capacity, head_dim)


def register() -> None:
    """Make `attend` known to transformers."""
    AttentionInterface.register(ATTENTION, attend)


def attend(
    module: torch.nn.Module,  # noqa: ARG001  (transformers' signature)
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of the last `n` tokens, without a mask to read wherever the shapes allow it.

    Args:
        module: The attention layer; not used.
        query: `[batch, heads, n, head_dim]`.
        key: `[batch, kv_heads, context, head_dim]`, as `KvCache` hands it out.
        value: Likewise.
        attention_mask: None, or the step's boolean mask `[1, 1, 1, context]` over a whole buffer.
        scaling: Of the scores; None: one over the root of head_dim.
        sliding_window: How many of the last tokens a query sees; None: all.
        softcap: What no score reaches; None: scores are not capped.
        others: What the model's implementation passes besides; a variant of attention must not be among it.

    Returns:
        `[batch, n, heads, head_dim]`, and None for the weights.

    Raises:
        BackendError: the model asks for a variant of attention that is not implemented here.
    """
    for name in ("s_aux", "position_bias"):
        if others.get(name) is not None:
            raise BackendError(f"the torch backend does not implement this model's attention: it uses {name}")
    if attention_mask is not None and sliding_window is not None and sliding_window < key.shape[2]:
        slots = torch.arange(key.shape[2], device=query.device)
        attention_mask = attention_mask & (slots >= attention_mask.sum() - sliding_window)
    if softcap is not None:
        output = attend_capped(query, key, value, attention_mask, scaling, sliding_window, softcap)
    elif attention_mask is not None:
        output = _attend_masked(query, key, value, attention_mask, scaling)
    elif query.shape[2] == 1:
        output = _attend_one(query, key, value, scaling, sliding_window)
    else:
        output = _attend_many(query, key, value, scaling, sliding_window)
    return output.transpose(1, 2).contiguous(), None


def _attend_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None, window: int | None
) -> torch.Tensor:
    """One token a sequence. The queries that share a key head stand in for its tokens: no key is repeated."""
    if window is not None:
        key, value = key[:, :, -window:], value[:, :, -window:]
    batch, heads, _, _ = query.shape
    packed = _pack(query, key)
    output = functional.scaled_dot_product_attention(packed, key, value, scale=scaling)
    return output.reshape(batch, heads, 1, -1)


def _attend_many(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None, window: int | None
) -> torch.Tensor:
    """Several tokens a sequence, the last of the context: causal, aligned at the end."""
    n, context = query.shape[2], key.shape[2]
    if window is not None and window < context:
        positions = torch.arange(context, device=query.device)
        ages = positions[-n:, None] - positions
        mask = (ages >= 0) & (ages < window)
    else:
        mask = causal_lower_right(n, context)
    grouped = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=grouped)


def _attend_masked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """One token a sequence over a whole buffer.

    The library's kernels that take a mask give one block of the GPU a whole head, which leaves most of the GPU idle
    at a batch of one, and want keys repeated for every query. So the context is cut into slices, as flash-decoding
    does (https://crfm.stanford.edu/2023/10/12/flashdecoding.html), with plain matrix products that read keys and
    values once.
    """
    batch, heads, _, head_dim = query.shape
    kv_heads, context = key.shape[1], key.shape[2]
    scale = head_dim**-0.5 if scaling is None else scaling
    scores = (_pack(query, key) @ key.transpose(2, 3)).float() * scale
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).to(value.dtype)
    slices = (batch, kv_heads, context // SPLIT)
    weights = weights.view(batch, kv_heads, -1, context // SPLIT, SPLIT).transpose(2, 3)
    output = weights @ value.view(*slices, SPLIT, -1)
    return output.sum(2, dtype=torch.float32).to(value.dtype).reshape(batch, heads, 1, -1)


def _pack(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """`[batch, heads, 1, head_dim]` -> `[batch, kv_heads, heads / kv_heads, head_dim]`."""
    batch, _, _, head_dim = query.shape
    return query.reshape(batch, key.shape[1], -1, head_dim)
