"""A model of mlx-lm with its prompt cache, driven as mlx-lm's own `generate_step` drives it."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache
from mlx_lm.utils import get_total_parameters

from backends.base import BackendError, Facts, Memory, Session
from backends.experts import step_by_step
from backends.mlx import caches, devices, experts, weights
from backends.mlx.errors import engine_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import Ids, LoadRequest, Logits

# What generate_step does by default: tokens a prefill piece, and steps between two clearings of the buffer cache.
_PREFILL_STEP = 2048
_CLEAR_CACHE_STEPS = 256

# Environment variables with which MLX changes its speed or its rounding.
_ENVIRONMENT = (
    "MLX_CUDA_GRAPH_CACHE_SIZE",
    "MLX_DISABLE_COMPILE",
    "MLX_ENABLE_TF32",
    "MLX_MAX_MB_PER_BUFFER",
    "MLX_MAX_OPS_PER_BUFFER",
    "MLX_METAL_FAST_SYNCH",
    "MLX_USE_CUDA_GRAPHS",
)


class MlxSession(Session):
    """One model on one stream."""

    def __init__(self, model: Any, config: dict[str, Any], request: LoadRequest, device: mx.Device) -> None:
        self._model = model
        self._config = config
        self._on_gpu = device == mx.gpu
        self._stream = mx.new_stream(device)
        self._cache: list[Any] = []
        self._context = 0
        self._uses_cache = True
        self._used = 0
        # A graph that is never computed tells the width and the type of what the model returns.
        with engine_errors(f"mlx-lm cannot run {request.artifact.name}"):
            logits = model(mx.zeros((1, 1), mx.int32))
        self._vocab_size = int(logits.shape[-1])
        model_format = weights.format_of(logits.dtype)
        self._kv_bits, self._kv_format = caches.choose(request.kv_k_format, request.kv_v_format, model_format)
        if self._kv_bits:
            with engine_errors(f"mlx-lm cannot keep a KV cache of {self._kv_bits} bits of {request.artifact.name}"):
                model(mx.zeros((1, 1), mx.int32), cache=caches.make(model, self._kv_bits))
        self._weight_format = request.weight_format or weights.stored_format(model, config)
        # MLX's gathered matrix product, which picks the experts, has no other kernel on the CPU.
        experts = config.get("num_experts") or config.get("num_local_experts")
        if experts and not self._on_gpu and self._weight_format != "f32":
            raise BackendError("mlx computes experts on the CPU in float32 only: use -w f32, or another engine")
        if 0 <= request.n_gpu_layers < self._gpu_layers():
            raise BackendError(f"mlx puts all layers on the GPU, not {request.n_gpu_layers}: use -ngl -1")
        # mlx-lm keeps this much resident while it generates.
        self._wired_bytes = devices.recommended_working_set() if self._on_gpu else None
        self._wired_bytes_before = mx.set_wired_limit(self._wired_bytes) if self._wired_bytes else 0

    @property
    def vocab_size(self) -> int:
        """The width of the logits."""
        return self._vocab_size

    @property
    def max_context(self) -> int | None:
        """The configuration's positions."""
        config = self._config.get("text_config") or self._config
        return config.get("max_position_embeddings") or config.get("n_positions")

    def allocate(self, context_tokens: int, batch: int, *, kv_cache: bool = True) -> None:  # noqa: ARG002
        """Start an empty cache: mlx-lm's grow as tokens arrive, and the first ones bring the batch."""
        # Past a table of positions MLX reads whatever lies there, without an error.
        if self.max_context and context_tokens > self.max_context:
            raise BackendError(f"the model was made for {self.max_context} tokens, not {context_tokens}")
        self._context = context_tokens
        self._uses_cache = kv_cache
        self._cache, self._used = self._empty_cache(), 0
        mx.clear_cache()
        mx.reset_peak_memory()

    def reset(self, keep_tokens: int = 0) -> int:
        """Trim the cache, where all its layers can: a sliding window that has turned over cannot."""
        keep = min(keep_tokens, self._used)
        if keep and can_trim_prompt_cache(self._cache):
            trim_prompt_cache(self._cache, self._used - keep)
            self._used = keep
        elif keep < self._used:
            self._cache, self._used = self._empty_cache(), 0
        return self._used

    def prefill(self, tokens: Ids) -> Ids:
        """All tokens but the last in pieces, for the cache; then the last one, with the LM head."""
        n = tokens.shape[1]
        self._require_room(n)
        with engine_errors("prefill failed"):
            prompt = mx.array(tokens)
            for start in range(0, n - 1, _PREFILL_STEP):
                self._forward(prompt[:, start : min(start + _PREFILL_STEP, n - 1)])
                mx.eval([layer.state for layer in self._cache])
                mx.clear_cache()
            return _to_host(self._next_ids(prompt[:, -1:]))

    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """The next step is in flight before the ids of the current one are read."""
        steps = tokens.shape[1]
        self._require_room(steps)
        inputs = mx.array(tokens)
        yield from self._one_ahead(self._next_ids(inputs[:, step : step + 1]) for step in range(steps))

    def recompute(self, tokens: Ids, first: int) -> Iterator[Ids]:
        """The model without a cache object; queued as in `decode`."""
        n = tokens.shape[1]
        self._require_room(n)
        inputs = mx.array(tokens)
        with weights.last_position_only(self._model):
            yield from self._one_ahead(self._uncached_ids(inputs[:, :end]) for end in range(first, n + 1))

    def logits(self, tokens: Ids) -> Logits:
        """In the pieces of a prefill, each with the LM head at every position."""
        batch, n = tokens.shape
        self._require_room(n)
        logits = np.empty((batch, n, self._vocab_size), np.float32)
        with engine_errors("logits failed"):
            for start in range(0, n, _PREFILL_STEP):
                piece = slice(start, start + _PREFILL_STEP)
                logits[:, piece] = self._forward(mx.array(tokens[:, piece])).astype(mx.float32)
        return logits

    def experts_hit(self, tokens: Ids, first: int) -> NDArray[np.int64] | None:
        """By mlx-lm's modules for experts; None for a model that has others."""
        return step_by_step(self, tokens, first, experts.watched, np.asarray)

    def facts(self) -> Facts:
        """Counted from the loaded arrays; MLX itself describes the device."""
        unavailable = {"n_threads": "MLX takes no thread count"}
        device_name = devices.name() if self._on_gpu else None
        device_memory_bytes = devices.total_memory() if self._on_gpu else None
        if self._on_gpu and device_name is None:
            unavailable["device_name"] = "MLX does not tell it"
        if self._on_gpu and device_memory_bytes is None:
            unavailable["device_memory_bytes"] = "MLX does not tell it"
        return Facts(
            backend_version=version("mlx"),
            engine_build=devices.build(),
            engine_mode="async-eval",
            device=(self._on_gpu and devices.accelerator()) or "cpu",
            device_name=device_name,
            device_memory_bytes=device_memory_bytes,
            n_threads=None,
            gpu_layers_effective=self._gpu_layers(),
            flash_attn="sdpa",
            n_params=get_total_parameters(self._model),
            weight_format=self._weight_format,
            weight_bytes=sum(array.nbytes for array in weights.arrays(self._model.parameters())),
            kv_k_format=self._kv_format,
            kv_v_format=self._kv_format,
            kv_allocated_tokens=caches.allocated_tokens(self._cache, self._context),
            engine_settings={
                "prefill_step_size": _PREFILL_STEP,
                "clear_cache_steps": _CLEAR_CACHE_STEPS,
                "kv_cache": sorted({type(layer).__name__ for layer in self._cache}),
                "wired_limit_bytes": self._wired_bytes,
                "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            },
            unavailable=unavailable,
        )

    def memory(self) -> Memory:
        """MLX's own peak counter, where it counts an accelerator's memory, and the cache's arrays."""
        unavailable = {}
        if not self._on_gpu:
            unavailable["peak_device_bytes"] = "the model runs on the CPU"
        kv_cache_bytes = caches.n_bytes(self._cache)
        if not kv_cache_bytes and self._uses_cache:
            unavailable["kv_cache_bytes"] = "MLX allocates the KV cache as tokens arrive"
        return Memory(
            peak_device_bytes=mx.get_peak_memory() if self._on_gpu else None,
            kv_cache_bytes=None if "kv_cache_bytes" in unavailable else kv_cache_bytes,
            unavailable=unavailable,
        )

    def close(self) -> None:
        """Drop the weights and the cache, and give wired memory back."""
        mx.synchronize(self._stream)
        self._model = None
        self._cache = []
        mx.clear_cache()
        if self._wired_bytes:
            mx.set_wired_limit(self._wired_bytes_before)

    def _empty_cache(self) -> list[Any]:
        return caches.make(self._model, self._kv_bits) if self._uses_cache else []

    def _require_room(self, n: int) -> None:
        if self._used + n > self._context:
            raise BackendError(f"{self._used} + {n} tokens do not fit into a context of {self._context}")

    def _forward(self, tokens: mx.array) -> mx.array:
        """The graph of one pass, which is not computed yet: `[batch, n]` -> logits `[batch, n, vocab]`."""
        self._used += tokens.shape[1]
        with mx.stream(self._stream):
            logits: mx.array = self._model(tokens, cache=self._cache)
        return logits

    def _next_ids(self, tokens: mx.array) -> mx.array:
        logits = self._forward(tokens)
        with mx.stream(self._stream):
            return mx.argmax(logits[:, -1, :], axis=-1)

    def _uncached_ids(self, prefix: mx.array) -> mx.array:
        with mx.stream(self._stream):
            return mx.argmax(self._model(prefix)[:, -1, :], axis=-1)

    def _one_ahead(self, steps: Iterator[mx.array]) -> Iterator[Ids]:
        """Bring each step's `[batch]` ids to the host while the device computes the next step."""
        with engine_errors("decode failed"):
            current = next(steps)
            mx.async_eval(current)
            for done, following in enumerate(steps):
                mx.async_eval(following)
                yield _to_host(current)
                current = following
                if done % _CLEAR_CACHE_STEPS == 0:
                    mx.clear_cache()
            yield _to_host(current)

    def _gpu_layers(self) -> int:
        """The repeating layers and the output layer, or none."""
        return len(self._model.layers) + 1 if self._on_gpu else 0


def _to_host(ids: mx.array) -> Ids:
    """Wait for `[batch]` ids; MLX's argmax is unsigned."""
    return np.asarray(ids).astype(np.int32)
