"""Which experts a forward pass reads, seen by a hook on the module that computes them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

# Set by transformers' `use_experts_implementation`, which makes of a model's experts one module with one interface:
# hidden states, the chosen experts' numbers, their weights.
_MARK = "is_transposed"


@contextmanager
def watched(model: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Within it, each layer's experts add the numbers of the chosen ones to the list, `[tokens, chosen]`."""
    seen: list[torch.Tensor] = []

    def look(_: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        tensors = (value for value in (*arguments, *named.values()) if isinstance(value, torch.Tensor))
        seen.append(next(tensor for tensor in tensors if not tensor.is_floating_point()))

    hooks = [
        module.register_forward_pre_hook(look, with_kwargs=True) for module in model.modules() if hasattr(module, _MARK)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
