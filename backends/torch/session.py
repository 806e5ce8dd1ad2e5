"""One transformers model with one KV cache, behind the backend contract; how it decodes is in `modes`."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from backends.base import BackendError, Session
from backends.experts import step_by_step
from backends.torch import experts, facts, modes
from backends.torch.attention import SPLIT, KvCache
from backends.torch.caches import LibraryCache
from backends.torch.devices import ASYNCHRONOUS
from backends.torch.errors import running_errors
from backends.torch.id_ring import IdRing
from backends.torch.linear import prefers_onednn
from backends.torch.passes import Passes
from backends.torch.setup import set_up
from backends.torch.weights import plain_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from backends.base import Facts, Held, Ids, LoadRequest, Logits, Memory
    from backends.torch.weights import Weights


class TorchSession(Session):
    """A session over a model that is already built, on its device and in its format.

    Args:
        model: A transformers causal language model.
        request: `engine_options` may hold "torch_mode": "auto" (default) or one of `modes.MODES`; and "cache": one of
            `caches.kinds()`, whose cache is used instead of the backend's own, in eager steps.
        weights: The model's; None: of one that is not quantised.

    Raises:
        BackendError: the model, the mode or the KV format is none that this backend can run.
    """

    def __init__(self, model: Any, request: LoadRequest, weights: Weights | None = None) -> None:
        self._model = model.eval().requires_grad_(False)
        self._setup = set_up(model, request, weights or plain_weights(model))
        self._passes: Passes | None = None  # of the last allocation
        self._mode: modes.Mode | None = None  # until the first decode
        self._onednn: dict[int, bool] = {}  # by batch, on a CPU: whether a step's matrix products are oneDNN's

    @property
    def vocab_size(self) -> int:
        """Rows of the output embedding."""
        return int(self._model.get_output_embeddings().out_features)

    @property
    def max_context(self) -> int | None:
        """The configuration's `max_position_embeddings`."""
        return self._setup.max_context

    def allocate(self, context_tokens: int, batch: int, *, kv_cache: bool = True) -> None:
        """Allocate exactly that many tokens; in the modes with fixed shapes, rounded up to a multiple of 128."""
        if self.max_context is not None and context_tokens > self.max_context:
            raise BackendError(f"{context_tokens} tokens exceed the model's context of {self.max_context}")
        device = self._setup.device
        self._passes = self._mode = None
        gc.collect()  # a step and its compiled form refer to each other, and hold the old cache
        with running_errors():
            if device.type in ASYNCHRONOUS:
                torch.accelerator.empty_cache()
                torch.accelerator.reset_peak_memory_stats(device)
            self._batch = batch
            cached = self._cached if kv_cache else self._uncached
            self._passes = cached(context_tokens)
            self._ring = IdRing(batch, device)

    def use(self, mode: str) -> None:
        """Decode in this mode from now on, over the cache that is allocated; "auto" takes the best that works.

        The first decode does it, not `allocate`: who only scores logits waits for no compiler.

        Raises:
            BackendError: the mode does not work here; never for "auto", which says in `engine_settings` why not.
        """
        self._mode = modes.Mode("eager", None, {})
        setup = self._setup
        self._mode = modes.begin(mode, setup.device, setup.weights, lambda: self._allocated().static_step(self._batch))

    def reset(self, keep_tokens: int = 0) -> int:
        """See the cache's `cut`: the backend's own cuts anywhere."""
        return self._allocated().cached().cut(keep_tokens)

    def prefill(self, tokens: Ids) -> Ids:
        """Argmax on the device."""
        with running_errors():
            logits = self._allocated().extend(tokens, keep=1)
            ids: Ids = logits[:, -1].argmax(-1).to(torch.int32).cpu().numpy()
        return ids

    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """On CUDA and XPU, step i+1 is enqueued before step i is handed out."""
        passes = self._allocated()
        passes.require_room(tokens.shape[1])
        if self._mode is None:
            with running_errors():
                self.use(self._setup.mode)
        return self._to_host(passes.steps(tokens, self._mode.step if self._mode else None))

    def recompute(self, tokens: Ids, first: int) -> Iterator[Ids]:
        """`use_cache=False`, the next step enqueued as in `decode`."""
        return self._to_host(self._allocated().prefixes(tokens, first))

    def logits(self, tokens: Ids) -> Logits:
        """Converted to float32 on the host."""
        with running_errors():
            logits: Logits = self._allocated().extend(tokens, keep=0).cpu().float().numpy()
        return logits

    def experts_hit(self, tokens: Ids, first: int) -> NDArray[np.int64] | None:
        """In eager steps, whose modules can be looked at; None for experts that transformers does not mark."""
        watched = partial(experts.watched, self._model)
        return step_by_step(self, tokens, first, watched, lambda chosen: chosen.cpu().numpy())

    def facts(self) -> Facts:
        """Of the model in memory and the last allocation."""
        return facts.facts(self._setup, self._passes, self._mode)

    def held(self) -> tuple[Held, ...]:
        """As the model has it in memory."""
        return self._setup.weights.held

    def memory(self) -> Memory:
        """Of the last allocation."""
        return facts.memory(self._setup, self._passes)

    def close(self) -> None:
        """Drop the model and hand its memory back."""
        self._model = self._passes = self._mode = None
        gc.collect()
        if self._setup.device.type in ASYNCHRONOUS:
            torch.accelerator.empty_cache()

    @torch.inference_mode()
    def _cached(self, context_tokens: int) -> Passes:
        """Passes over a new cache, which has all of its memory."""
        batch, device = self._batch, self._setup.device
        token = torch.zeros(batch, 1, dtype=torch.int64, device=device)
        position = torch.zeros(1, 1, dtype=torch.int64, device=device)
        if batch not in self._onednn and device.type == "cpu":
            # No cache yet, and none needed: it takes no part in a matrix product.
            uncached = self._uncached(context_tokens)
            self._onednn[batch] = prefers_onednn(lambda: uncached.forward(token, position))
        cache = self._new_cache(context_tokens)
        passes = Passes(self._model, self._setup, cache.capacity, cache, onednn=self._onednn.get(batch))
        # Only the model knows the shape of each layer's keys and values: one token makes it tell.
        passes.forward(token, position)
        cache.length = 1
        cache.cut(0)
        return passes

    def _uncached(self, context_tokens: int) -> Passes:
        return Passes(self._model, self._setup, context_tokens)

    def _new_cache(self, context_tokens: int) -> KvCache | LibraryCache:
        setup = self._setup
        if setup.cache_kind is not None:
            return LibraryCache(setup.cache_kind, setup.config, context_tokens, setup.cache_format)
        return KvCache(-(-context_tokens // SPLIT) * SPLIT if setup.has_fixed_shapes else context_tokens)

    def _to_host(self, enqueued: Iterator[torch.Tensor]) -> Iterator[Ids]:
        with running_errors():
            yield from self._ring.to_host(enqueued)

    def _allocated(self) -> Passes:
        if self._passes is None:
            raise BackendError("no KV cache is allocated")
        return self._passes
