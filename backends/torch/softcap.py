"""Attention whose scores are capped, as Gemma 2's are: none of torch's fused kernels has that.

Source: `eager_attention_forward` in transformers' `modeling_gemma2.py`.
"""

from __future__ import annotations

import torch

# Of one piece's scores, so that a long prompt's do not take more memory than its weights.
_SCORES_BYTES = 64 * 1024 * 1024


def attend_capped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    window: int | None,
    softcap: float,
) -> torch.Tensor:
    """Causal attention of the last `n` tokens with scores `softcap · tanh(score / softcap)`, piece by piece.

    Args:
        query: `[batch, heads, n, head_dim]`.
        key: `[batch, kv_heads, context, head_dim]`.
        value: Likewise.
        mask: None, or what one query sees of a whole buffer, `[1, 1, 1, context]`, its window included.
        scaling: Of the scores; None: one over the root of head_dim.
        window: How many of the last tokens a query sees; None: all. Not looked at where there is a mask.
        softcap: What no score reaches.

    Returns:
        `[batch, heads, n, head_dim]`.
    """
    batch, heads, n, head_dim = query.shape
    if mask is None and n == 1 and window is not None:
        key, value, window = key[:, :, -window:], value[:, :, -window:], None
    kv_heads, context = key.shape[1:3]
    scale = head_dim**-0.5 if scaling is None else scaling
    slots = torch.arange(context, device=query.device)
    rows = max(1, _SCORES_BYTES // (4 * batch * heads * context))
    outputs = []
    for start in range(0, n, rows):
        part = query[:, :, start : start + rows]
        n_part = part.shape[2]
        packed = part.reshape(batch, kv_heads, -1, head_dim)  # the queries that share a key stand in for its tokens
        scores = (packed @ key.transpose(2, 3)).float() * scale
        scores = (softcap * torch.tanh(scores / softcap)).view(batch, heads, n_part, context)
        ages = (context - n + start + torch.arange(n_part, device=query.device))[:, None] - slots
        seen = mask if mask is not None else (ages >= 0) & (ages < (window or context))
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).to(value.dtype)
        output = weights.view(batch, kv_heads, -1, context) @ value
        outputs.append(output.view(batch, heads, n_part, head_dim))
    return torch.cat(outputs, dim=2)
