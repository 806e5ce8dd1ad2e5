"""Forward passes of a model of transformers, over a KV cache or without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from backends.base import BackendError
from backends.torch.attention import SPLIT
from backends.torch.caches import LibraryCache
from backends.torch.linear import linear_products
from backends.torch.steps import StaticStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.base import Ids
    from backends.torch.attention import KvCache
    from backends.torch.setup import Setup


class Passes:
    """Those of one allocation.

    Args:
        model: A transformers causal language model.
        setup: From `set_up`.
        context_tokens: The most of a sequence.
        cache: Empty, or where the last passes left it; None: no pass knows of another.
        onednn: Whose matrix products a step takes on a CPU, oneDNN's or torch's own; None: there is no choice.
    """

    def __init__(
        self,
        model: Any,
        setup: Setup,
        context_tokens: int,
        cache: KvCache | LibraryCache | None = None,
        *,
        onednn: bool | None = None,
    ) -> None:
        self._model, self._setup = model, setup
        self.cache, self.onednn = cache, onednn
        self._positions = torch.arange(context_tokens, device=setup.device).unsqueeze(0)

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None = None, keep: int = 1
    ) -> torch.Tensor:
        """`[batch, n]` tokens, `[1, n]` positions -> logits of the last `keep` (0: all) positions."""
        arguments = {self._setup.cache_name: self.cache.past} if self.cache is not None else {}
        logits: torch.Tensor = self._model(
            tokens,
            position_ids=positions,
            attention_mask=mask,
            use_cache=self.cache is not None,
            logits_to_keep=keep,
            **arguments,
        ).logits
        return logits

    @torch.inference_mode()
    def extend(self, tokens: Ids, keep: int) -> torch.Tensor:
        """Put `[batch, n]` tokens behind those in the cache -> logits of the last `keep` (0: all) positions."""
        cache, n = self.cached(), tokens.shape[1]
        self.require_room(n)
        positions = self._positions[:, cache.length : cache.length + n]
        logits = self.forward(self._to_device(tokens), positions, keep=keep)
        cache.length += n
        return logits

    def steps(self, tokens: Ids, fixed: StaticStep | None) -> Iterator[torch.Tensor]:
        """Enqueue one step after the other.

        Args:
            tokens: `[batch, steps]`, the forced inputs.
            fixed: The step of fixed shapes that runs; None: ordinary forward passes.

        Yields:
            Each step's ids, `[batch]` on the device.
        """
        cache, inputs = self.cached(), self._to_device(tokens)
        if fixed:
            fixed.begin(inputs, cache.length)
        for step in range(tokens.shape[1]):
            yield self._step(inputs, step, fixed)

    def prefixes(self, tokens: Ids, first: int) -> Iterator[torch.Tensor]:
        """Enqueue a pass over each prefix of `[batch, n]` tokens, from `first` tokens on; yields as `steps` does."""
        n, room = tokens.shape[1], self._positions.shape[1]
        if n > room:
            raise BackendError(f"{n} tokens exceed the {room} asked for")
        inputs = self._to_device(tokens)
        for end in range(first, n + 1):
            yield self._uncached(inputs[:, :end])

    def static_step(self, batch: int) -> StaticStep:
        """A step of fixed shapes over the cache.

        Raises:
            BackendError: this cache has none.
        """
        cache, limit = self.cached(), self._setup.max_context
        if isinstance(cache, LibraryCache) or cache.capacity % SPLIT:
            raise BackendError("a session made for eager steps has no cache for fixed shapes")
        with torch.inference_mode():
            spare = min(cache.capacity, limit or cache.capacity) - 1  # a decode needs it last
            return StaticStep(self.forward, cache, batch, spare, self._setup.device)

    def cached(self) -> KvCache | LibraryCache:
        """The cache.

        Raises:
            BackendError: there is none.
        """
        if self.cache is None:
            raise BackendError("no KV cache is allocated")
        return self.cache

    def require_room(self, n: int) -> None:
        """Refuse tokens that the cache cannot take."""
        cache = self.cached()
        room = min(cache.capacity, self._setup.max_context or cache.capacity)
        if cache.length + n > room:
            raise BackendError(f"{cache.length + n} tokens do not fit into a KV cache of {room}")

    @torch.inference_mode()
    def _step(self, inputs: torch.Tensor, step: int, fixed: StaticStep | None) -> torch.Tensor:
        cache = self.cached()
        if fixed:
            fixed.run()
            ids = fixed.ids
        else:
            position = self._positions[:, cache.length : cache.length + 1]
            with linear_products(onednn=self.onednn is not False):
                ids = self.forward(inputs[:, step : step + 1], position)[:, -1].argmax(-1)
        cache.length += 1
        return ids

    @torch.inference_mode()
    def _uncached(self, prefix: torch.Tensor) -> torch.Tensor:
        logits = self.forward(prefix, self._positions[:, : prefix.shape[1]])
        return logits[:, -1].argmax(-1)

    def _to_device(self, tokens: Ids) -> torch.Tensor:
        return torch.from_numpy(tokens.astype(np.int64)).to(self._setup.device)
