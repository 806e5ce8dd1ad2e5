"""Which experts a forward pass reads, seen by a wrapper around the modules of mlx-lm that compute them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlx_lm.models.switch_layers import SwitchGLU, SwitchMLP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import mlx.core as mx
_KINDS = (SwitchGLU, SwitchMLP)


@contextmanager
def watched() -> Iterator[list[mx.array]]:
    """Within it, each layer's experts add the numbers of the chosen ones to the list, `[batch, tokens, chosen]`."""
    seen: list[mx.array] = []

    def watching(usual: Callable[..., mx.array]) -> Callable[..., mx.array]:
        def call(module: Any, x: mx.array, indices: mx.array) -> mx.array:
            seen.append(indices)
            return usual(module, x, indices)

        return call

    usual = [kind.__call__ for kind in _KINDS]
    try:
        for kind, call in zip(_KINDS, usual, strict=True):
            kind.__call__ = watching(call)  # type: ignore[method-assign]  # Python looks it up in the class
        yield seen
    finally:
        for kind, call in zip(_KINDS, usual, strict=True):
            kind.__call__ = call  # type: ignore[method-assign]
