"""One transformers model with one KV cache, behind the backend contract; how it decodes is in `modes`."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

from backends.base import BackendError, Facts, Memory, Session
from backends.experts import step_by_step
from backends.torch import experts, modes
from backends.torch.attention import SPLIT, KvCache
from backends.torch.caches import QUANTIZED, LibraryCache, choose, stored
from backends.torch.devices import build, name_and_memory
from backends.torch.errors import running_errors
from backends.torch.fitting import fit
from backends.torch.linear import linear_products, prefers_onednn
from backends.torch.steps import ASYNCHRONOUS, IdRing, StaticStep
from backends.torch.weights import plain_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import Held, Ids, LoadRequest, Logits
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
        self._device = torch.device(model.device)
        self._config = model.config.get_text_config()
        self._weights = weights or plain_weights(model)
        options, plain = dict(request.engine_options), self._weights.plain
        formats = (request.kv_k_format, request.kv_v_format)
        # None: the backend's own cache
        self._cache_kind, self._cache_format = choose(options.pop("cache", None), formats, model, plain)
        self._kv_format, self._unquantised = self._cache_format, 0
        if self._cache_kind == QUANTIZED:
            self._kv_format, self._unquantised = stored(self._cache_format, self._config, plain)
        self._asked_mode = modes.asked(options, self._device, self._cache_kind)
        self._cache_name = fit(model, own_attention=self._cache_kind is None)
        self._cache: KvCache | LibraryCache | None = None
        self._mode: modes.Mode | None = None  # until the first decode
        self._batch = 0
        self._onednn: dict[int, bool] = {}  # by batch, on a CPU: whether a step's matrix products are oneDNN's

    @property
    def vocab_size(self) -> int:
        """Rows of the output embedding."""
        return int(self._model.get_output_embeddings().out_features)

    @property
    def max_context(self) -> int | None:
        """The configuration's `max_position_embeddings`."""
        limit: int | None = getattr(self._config, "max_position_embeddings", None)
        return limit

    def allocate(self, context_tokens: int, batch: int, *, kv_cache: bool = True) -> None:
        """Allocate exactly that many tokens; in the modes with fixed shapes, rounded up to a multiple of 128."""
        if self.max_context is not None and context_tokens > self.max_context:
            raise BackendError(f"{context_tokens} tokens exceed the model's context of {self.max_context}")
        self._cache = self._mode = None
        gc.collect()  # a step and its compiled form refer to each other, and hold the old cache
        with running_errors():
            if self._device.type in ASYNCHRONOUS:
                torch.accelerator.empty_cache()
                torch.accelerator.reset_peak_memory_stats(self._device)
            self._batch = batch
            if kv_cache:
                self._allocate(context_tokens)
            else:
                self._positions = torch.arange(context_tokens, device=self._device).unsqueeze(0)
            self._ring = IdRing(batch, self._device)

    def use(self, mode: str) -> None:
        """Decode in this mode from now on, over the cache that is allocated; "auto" takes the best that works.

        The first decode does it, not `allocate`: who only scores logits waits for no compiler.

        Raises:
            BackendError: the mode does not work here; never for "auto", which says in `engine_settings` why not.
        """
        self._mode = modes.Mode("eager", None, {})
        self._mode = modes.begin(mode, self._device, self._weights, self._static_step)

    def reset(self, keep_tokens: int = 0) -> int:
        """See the cache's `cut`: the backend's own cuts anywhere."""
        return self._allocated().cut(keep_tokens)

    def prefill(self, tokens: Ids) -> Ids:
        """Argmax on the device."""
        with running_errors():
            ids: Ids = self._extend(tokens, keep=1)[:, -1].argmax(-1).to(torch.int32).cpu().numpy()
        return ids

    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """On CUDA and XPU, step i+1 is enqueued before step i is handed out."""
        cache = self._allocated()
        self._require_room(tokens.shape[1])
        if self._mode is None:
            with running_errors():
                self.use(self._asked_mode)
        return self._steps(cache, tokens)

    def recompute(self, tokens: Ids, first: int) -> Iterator[Ids]:
        """`use_cache=False`, the next step enqueued as in `decode`."""
        n, room = tokens.shape[1], self._positions.shape[1]
        if n > room:
            raise BackendError(f"{n} tokens exceed the {room} asked for")
        with running_errors():
            inputs = self._to_device(tokens)
            ends = range(first, n + 1)
            yield from self._one_ahead(self._uncached_ids(inputs[:, :end]) for end in ends)

    def logits(self, tokens: Ids) -> Logits:
        """Converted to float32 on the host."""
        with running_errors():
            logits: Logits = self._extend(tokens, keep=0).cpu().float().numpy()
        return logits

    def experts_hit(self, tokens: Ids, first: int) -> NDArray[np.int64] | None:
        """In eager steps, whose modules can be looked at; None for experts that transformers does not mark."""
        watched = partial(experts.watched, self._model)
        return step_by_step(self, tokens, first, watched, lambda chosen: chosen.cpu().numpy())

    def facts(self) -> Facts:
        """Counted from the model's own tensors, which hold a tied one once."""
        device_name, memory_bytes = name_and_memory(self._device)
        on_device = self._device.type != "cpu"
        mode = self._mode.name if self._mode else "eager"  # prefill is eager in every mode
        return Facts(
            backend_version=torch.__version__,
            engine_build=build(),
            engine_mode=mode,
            device=str(self._device),
            device_name=device_name,
            device_memory_bytes=memory_bytes,
            n_threads=torch.get_num_threads(),
            gpu_layers_effective=self._config.num_hidden_layers + 1 if on_device else 0,
            flash_attn="sdpa" if mode == "eager" else "split matmul",
            n_params=self._weights.n_params,
            weight_format=self._weights.name,
            weight_bytes=self._weights.n_bytes,
            kv_k_format=self._kv_format,
            kv_v_format=self._kv_format,
            kv_allocated_tokens=self._cache.allocated_tokens if self._cache is not None else 0,
            engine_settings={
                "transformers": transformers.__version__,
                "torch_mode": self._asked_mode,
                "kv_cache": self._cache_in_use(mode),
                "steps_ahead": 1 if self._device.type in ASYNCHRONOUS else 0,
                "argmax": "device",
                "decode_linear": self._linear_in_use(),
                "float32_matmul_precision": torch.get_float32_matmul_precision(),
                "experts": getattr(self._config, "_experts_implementation", None),
                **self._weights.settings,
                **self._products(mode),
                **(self._mode.settings if self._mode else {}),
            },
        )

    def held(self) -> tuple[Held, ...]:
        """As the model has it in memory."""
        return self._weights.held

    def _cache_in_use(self, mode: str) -> str:
        if self._cache is None:
            return "none"
        if self._cache_kind == QUANTIZED:
            latest = f", the latest {self._unquantised} tokens not" if self._unquantised else ""
            return f"{QUANTIZED} by {self._cache_format}{latest}"
        return self._cache_kind or ("views" if mode == "eager" else "whole buffer, masked")

    def _products(self, mode: str) -> dict[str, str]:
        """What becomes of weights that torchao multiplies with only after they are expanded."""
        if not self._weights.eager_expands:
            return {}
        expanded = "expanded to bf16 in every pass"
        return {"prefill_products": expanded, "decode_products": expanded if mode == "eager" else "fused"}

    def _linear_in_use(self) -> str | None:
        """Whose matrix products a decode step takes; None where there is no choice: of several tokens, on a GPU."""
        onednn = self._onednn.get(self._batch) if self._cache is not None else None
        return {True: "onednn", False: "native", None: None}[onednn]

    def memory(self) -> Memory:
        """The accelerator's allocator counts its own peak; MPS has no such counter."""
        kv_cache_bytes = self._cache.n_bytes if self._cache is not None else 0
        if self._device.type in ASYNCHRONOUS:
            return Memory(torch.accelerator.max_memory_allocated(self._device), kv_cache_bytes)
        reason = "the model is on the CPU" if self._device.type == "cpu" else "torch has no peak counter on MPS"
        return Memory(None, kv_cache_bytes, {"peak_device_bytes": reason})

    def close(self) -> None:
        """Drop the model and hand its memory back."""
        self._model = self._cache = self._mode = None
        gc.collect()
        if self._device.type in ASYNCHRONOUS:
            torch.accelerator.empty_cache()

    @torch.inference_mode()
    def _allocate(self, context_tokens: int) -> None:
        token = torch.zeros(self._batch, 1, dtype=torch.int64, device=self._device)
        position = torch.zeros(1, 1, dtype=torch.int64, device=self._device)
        if self._batch not in self._onednn and self._device.type == "cpu":
            # No cache yet, and none needed: it takes no part in a matrix product.
            self._onednn[self._batch] = prefers_onednn(lambda: self._forward(token, position))
        self._cache = cache = self._new_cache(context_tokens)
        self._positions = torch.arange(cache.capacity, device=self._device).unsqueeze(0)
        # Only the model knows the shape of each layer's keys and values: one token makes it tell.
        self._forward(token, position)
        cache.length = 1
        cache.cut(0)

    def _new_cache(self, context_tokens: int) -> KvCache | LibraryCache:
        if self._cache_kind is not None:
            return LibraryCache(self._cache_kind, self._config, context_tokens, self._cache_format)
        fixed = modes.has_fixed_shapes(self._asked_mode, self._device, self._weights)
        return KvCache(-(-context_tokens // SPLIT) * SPLIT if fixed else context_tokens)

    @property
    def _fixed_step(self) -> StaticStep | None:
        return self._mode.step if self._mode else None

    def _static_step(self) -> StaticStep:
        cache = self._allocated()
        if isinstance(cache, LibraryCache) or cache.capacity % SPLIT:
            raise BackendError("a session made for eager steps has no cache for fixed shapes")
        with torch.inference_mode():
            spare = min(cache.capacity, self.max_context or cache.capacity) - 1  # a decode needs it last
            return StaticStep(self._forward, cache, self._batch, spare, self._device)

    def _forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None = None, keep: int = 1
    ) -> torch.Tensor:
        """`[batch, n]` tokens, `[1, n]` positions -> logits of the last `keep` (0: all) positions."""
        arguments = {self._cache_name: self._cache.past} if self._cache is not None else {}
        logits: torch.Tensor = self._model(
            tokens,
            position_ids=positions,
            attention_mask=mask,
            use_cache=self._cache is not None,
            logits_to_keep=keep,
            **arguments,
        ).logits
        return logits

    @torch.inference_mode()
    def _extend(self, tokens: Ids, keep: int) -> torch.Tensor:
        cache, n = self._allocated(), tokens.shape[1]
        self._require_room(n)
        positions = self._positions[:, cache.length : cache.length + n]
        logits = self._forward(self._to_device(tokens), positions, keep=keep)
        cache.length += n
        return logits

    def _steps(self, cache: KvCache | LibraryCache, tokens: Ids) -> Iterator[Ids]:
        with running_errors():
            inputs = self._to_device(tokens)
            if fixed := self._fixed_step:
                fixed.begin(inputs, cache.length)
            yield from self._one_ahead(self._step(cache, inputs, step) for step in range(tokens.shape[1]))

    def _one_ahead(self, enqueued: Iterator[torch.Tensor]) -> Iterator[Ids]:
        """Bring each step's `[batch]` ids to the host; where the device is asynchronous, with the next one enqueued."""
        ring, step = self._ring, -1
        for step, ids in enumerate(enqueued):
            ring.push(step, ids)
            if step >= ring.ahead:
                yield ring.pop(step - ring.ahead)
        if ring.ahead and step >= 0:
            yield ring.pop(step)

    @torch.inference_mode()
    def _uncached_ids(self, prefix: torch.Tensor) -> torch.Tensor:
        logits = self._forward(prefix, self._positions[:, : prefix.shape[1]])
        return logits[:, -1].argmax(-1)

    @torch.inference_mode()
    def _step(self, cache: KvCache | LibraryCache, inputs: torch.Tensor, step: int) -> torch.Tensor:
        """Enqueue one step and return its ids, `[batch]` on the device."""
        if fixed := self._fixed_step:
            fixed.run()
            ids = fixed.ids
        else:
            position = self._positions[:, cache.length : cache.length + 1]
            with linear_products(onednn=self._onednn.get(self._batch, True)):
                ids = self._forward(inputs[:, step : step + 1], position)[:, -1].argmax(-1)
        cache.length += 1
        return ids

    def _to_device(self, tokens: Ids) -> torch.Tensor:
        return torch.from_numpy(tokens.astype(np.int64)).to(self._device)

    def _allocated(self) -> KvCache | LibraryCache:
        if self._cache is None:
            raise BackendError("no KV cache is allocated")
        return self._cache

    def _require_room(self, n: int) -> None:
        cache = self._allocated()
        room = min(cache.capacity, self.max_context or cache.capacity)
        if cache.length + n > room:
            raise BackendError(f"{cache.length + n} tokens do not fit into a KV cache of {room}")
