"""One transformers model with one KV cache, behind the backend contract.

How a token is decoded (`engine_mode`):

- "eager": one ordinary forward pass a step over a view of the cache that ends at the context. The default everywhere
  but on CUDA.
- "compiled": the step of `steps`, through torch.compile. On a CPU it gains 4 % with a model of a billion
  parameters, whose step is the reading of its weights, and 18 % with one of 30 million; but it needs a C++ compiler,
  and half a minute for every shape, so it runs only when asked for.
- "cuda-graph": the same step, compiled where that works, captured in a CUDA graph and replayed. The default on CUDA.

On CUDA and XPU the next step is enqueued before the last one's ids are waited for. Prefill is eager in every mode.
"""

from __future__ import annotations

import gc
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

from backends.base import BackendError, Facts, Memory, OutOfMemoryError, Session
from backends.torch.attention import ATTENTION, SPLIT, KvCache, register
from backends.torch.caches import QUANTIZED, LibraryCache, choose, stored
from backends.torch.linear import linear_products, prefers_onednn
from backends.torch.steps import ASYNCHRONOUS, IdRing, StaticStep, inductor_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.base import Ids, LoadRequest, Logits

MODES = ("eager", "compiled", "cuda-graph")
FORMATS = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class TorchSession(Session):
    """A session over a model that is already built, on its device and in its format.

    Args:
        model: A transformers causal language model.
        request: `engine_options` may hold "torch_mode": "auto" (default) or one of `MODES`; and "cache": one of
            `caches.kinds()`, whose cache is used instead of the backend's own, in eager steps.

    Raises:
        BackendError: the model, the mode or the KV format is none that this backend can run.
    """

    def __init__(self, model: Any, request: LoadRequest) -> None:
        self._model = model.eval().requires_grad_(False)
        self._device = torch.device(model.device)
        self._config = model.config.get_text_config()
        self._format = FORMATS[model.dtype]
        options = dict(request.engine_options)
        formats = (request.kv_k_format, request.kv_v_format)
        # None: the backend's own cache
        self._cache_kind, self._cache_format = choose(options.pop("cache", None), formats, model, self._format)
        self._kv_format, self._unquantised = self._cache_format, 0
        if self._cache_kind == QUANTIZED:
            self._kv_format, self._unquantised = stored(self._cache_format, self._config, self._format)
        self._asked_mode = _asked_mode(options, self._device, self._cache_kind)
        self._weight_bytes = sum(weight.nbytes for weight in model.parameters())
        _use_attention(model, own=self._cache_kind is None)
        model.get_output_embeddings().register_forward_pre_hook(_dense)
        # transformers 5.24 renamed the argument, and warns about the old name.
        parameters = inspect.signature(type(model).forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._cache: KvCache | LibraryCache | None = None
        self._static: StaticStep | None = None
        self._settings: dict[str, Any] = {}
        self._batch = 0
        self.mode = ""  # until the first decode
        self._onednn: dict[int, bool] = {}  # by batch, on a CPU: whether a step's matrix products are oneDNN's

    @property
    def vocab_size(self) -> int:
        """Rows of the output embedding."""
        return int(self._model.get_output_embeddings().weight.shape[0])

    @property
    def max_context(self) -> int | None:
        """The configuration's `max_position_embeddings`."""
        limit: int | None = getattr(self._config, "max_position_embeddings", None)
        return limit

    def allocate(self, context_tokens: int, batch: int, *, kv_cache: bool = True) -> None:
        """Allocate exactly that many tokens; in the modes with fixed shapes, rounded up to a multiple of 128."""
        if self.max_context is not None and context_tokens > self.max_context:
            raise BackendError(f"{context_tokens} tokens exceed the model's context of {self.max_context}")
        self._cache = self._static = None
        gc.collect()  # a step and its compiled form refer to each other, and hold the old cache
        with _translated_errors():
            if self._device.type in ASYNCHRONOUS:
                torch.accelerator.empty_cache()
                torch.accelerator.reset_peak_memory_stats(self._device)
            self._batch = batch
            if kv_cache:
                self._allocate(context_tokens)
            else:
                self._positions = torch.arange(context_tokens, device=self._device).unsqueeze(0)
            self._ring = IdRing(batch, self._device)
        self.mode = ""

    def use(self, mode: str) -> None:
        """Decode in this mode from now on, over the cache that is allocated; "auto" takes the best that works.

        The first decode does it, not `allocate`: who only scores logits waits for no compiler.

        Raises:
            BackendError: the mode does not work here; never for "auto", which says in `engine_settings` why not.
        """
        graphs = mode == "cuda-graph" or (mode == "auto" and self._device.type == "cuda")
        self._settings, self._static, self.mode = {}, None, "eager"
        if not graphs and mode != "compiled":
            return
        step = self._static_step()
        compiled = self._try("torch.compile", lambda: step.compile(self._weight_bytes))
        captured = graphs and self._try("cuda graph capture", step.capture)
        if self._device.type in ASYNCHRONOUS:  # what compiling and tuning took is not the run's
            torch.accelerator.reset_peak_memory_stats(self._device)
        if captured or (compiled and mode != "cuda-graph"):
            kernels = "compiled" if compiled else "not compiled"
            self.mode = f"cuda-graph, {kernels}" if captured else "compiled"
            self._static = step
        elif mode != "auto":
            raise BackendError(f"torch cannot run {mode!r} here: {self._settings}")

    def reset(self, keep_tokens: int = 0) -> int:
        """See the cache's `cut`: the backend's own cuts anywhere."""
        return self._allocated().cut(keep_tokens)

    def prefill(self, tokens: Ids) -> Ids:
        """Argmax on the device."""
        with _translated_errors():
            ids: Ids = self._extend(tokens, keep=1)[:, -1].argmax(-1).to(torch.int32).cpu().numpy()
        return ids

    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """On CUDA and XPU, step i+1 is enqueued before step i is handed out."""
        cache = self._allocated()
        self._require_room(tokens.shape[1])
        if not self.mode:
            with _translated_errors():
                self.use(self._asked_mode)
        return self._steps(cache, tokens)

    def recompute(self, tokens: Ids, first: int) -> Iterator[Ids]:
        """`use_cache=False`, the next step enqueued as in `decode`."""
        n, room = tokens.shape[1], self._positions.shape[1]
        if n > room:
            raise BackendError(f"{n} tokens exceed the {room} asked for")
        with _translated_errors():
            inputs = self._to_device(tokens)
            ends = range(first, n + 1)
            yield from self._one_ahead(self._uncached_ids(inputs[:, :end]) for end in ends)

    def logits(self, tokens: Ids) -> Logits:
        """Converted to float32 on the host."""
        with _translated_errors():
            logits: Logits = self._extend(tokens, keep=0).cpu().float().numpy()
        return logits

    def facts(self) -> Facts:
        """Counted from the model's own tensors, which hold a tied one once."""
        properties, unavailable = _device_properties(self._device)
        on_device = self._device.type != "cpu"
        mode = self.mode or "eager"  # prefill is eager in every mode
        return Facts(
            backend_version=torch.__version__,
            engine_build=build(),
            engine_mode=mode,
            device=str(self._device),
            device_name=properties[0],
            device_memory_bytes=properties[1],
            n_threads=torch.get_num_threads(),
            gpu_layers_effective=self._config.num_hidden_layers + 1 if on_device else 0,
            flash_attn="sdpa" if mode == "eager" else "split matmul",
            n_params=sum(weight.numel() for weight in self._model.parameters()),
            weight_format=self._format,
            weight_bytes=self._weight_bytes,
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
                **self._settings,
            },
            unavailable=unavailable,
        )

    def _cache_in_use(self, mode: str) -> str:
        if self._cache is None:
            return "none"
        if self._cache_kind == QUANTIZED:
            latest = f", the latest {self._unquantised} tokens not" if self._unquantised else ""
            return f"{QUANTIZED} by {self._cache_format}{latest}"
        return self._cache_kind or ("views" if mode == "eager" else "whole buffer, masked")

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
        self._model = self._cache = self._static = None
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
        eager = self._asked_mode == "eager" or (self._asked_mode == "auto" and self._device.type != "cuda")
        return KvCache(context_tokens if eager else -(-context_tokens // SPLIT) * SPLIT)

    def _static_step(self) -> StaticStep:
        cache = self._allocated()
        if isinstance(cache, LibraryCache) or cache.capacity % SPLIT:
            raise BackendError("a session made for eager steps has no cache for fixed shapes")
        with torch.inference_mode():
            spare = min(cache.capacity, self.max_context or cache.capacity) - 1  # a decode needs it last
            return StaticStep(self._forward, cache, self._batch, spare, self._device)

    def _try(self, what: str, action: Any) -> bool:
        """Do it and note the outcome in the settings; running out of memory is no reason to go on."""
        try:
            with torch.inference_mode():
                action()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (compilers raise anything; the reason is kept)
            self._settings[what] = f"failed: {_reason(error)}"
            return False
        self._settings[what] = inductor_options(self._weight_bytes) if what == "torch.compile" else True
        return True

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
        with _translated_errors():
            inputs = self._to_device(tokens)
            if self._static is not None:
                self._static.begin(inputs, cache.length)
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
        if self._static is not None:
            self._static.run()
            ids = self._static.ids
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


def build() -> str:
    """What identifies the build beside torch's version: transformers, and the accelerator's toolkit."""
    toolkits = {"CUDA": torch.version.cuda, "HIP": torch.version.hip, "XPU": torch.version.xpu}
    found = [f"{name} {version}" for name, version in toolkits.items() if version]
    return ", ".join([f"transformers {transformers.__version__}", *found])


def _asked_mode(options: dict[str, Any], device: torch.device, cache_kind: str | None) -> str:
    mode = options.pop("torch_mode", "auto")
    if options:
        raise BackendError(f"the torch backend does not know the engine option {next(iter(options))!r}")
    if mode not in {"auto", *MODES}:
        raise BackendError(f"torch_mode is 'auto', 'eager', 'compiled' or 'cuda-graph', not {mode!r}")
    if mode == "cuda-graph" and device.type != "cuda":
        raise BackendError(f"torch_mode 'cuda-graph' needs a CUDA device; this one is {device}")
    if cache_kind is None:
        return str(mode)
    if mode not in {"auto", "eager"}:
        raise BackendError(f"torch_mode {mode!r} needs the backend's own cache, not transformers' {cache_kind} one")
    return "eager"


def _use_attention(model: Any, *, own: bool) -> None:
    """Have the model call `attend`; not `own`: transformers' function, which transformers' caches are made for.

    Raises:
        BackendError: the model keeps another state than keys and values, or takes no attention function.
    """
    config = model.config.get_text_config()
    others = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if others:
        raise BackendError(f"the torch backend does not run {config.model_type}: it has {', '.join(sorted(others))}")
    # Set to a name that it cannot call, a model that takes no function would go on as if nothing had happened.
    if not getattr(model, "_supports_attention_backend", False):
        raise BackendError(
            f"the torch backend does not run {config.model_type}: its implementation in transformers "
            f"{transformers.__version__} takes no attention function"
        )
    register()
    try:
        model.set_attn_implementation(ATTENTION if own else "sdpa")
    except ValueError as error:
        raise BackendError(f"transformers' caches need its sdpa attention: {_first_line(error)}") from error


def _dense(_: torch.nn.Module, arguments: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """Copy the last position's hidden state out of its sequence, `[batch, 1, width]`.

    As the slice that it is, torch.matmul would not see a matrix in it, and would copy the whole LM head for a batched
    product: 1.6 s of a 1.9 s prefill (seen on a CPU with 128256 rows).
    """
    (hidden,) = arguments
    is_slice = hidden.stride(0) != hidden.shape[1] * hidden.stride(1)
    return (hidden.clone(memory_format=torch.contiguous_format),) if is_slice else arguments


def _device_properties(device: torch.device) -> tuple[tuple[str | None, int | None], dict[str, str]]:
    """Name and memory of a device, and why one is missing."""
    if device.type in ASYNCHRONOUS:
        properties = torch.get_device_module(device).get_device_properties(device)
        return (properties.name, properties.total_memory), {}
    if device.type == "mps":
        return (torch.backends.mps.get_name(), torch.mps.recommended_max_memory()), {}
    return (None, None), {}


def _reason(error: BaseException) -> str:
    """The error's class and first two lines, without the paths of this machine."""
    text = " ".join(str(error).split("\n")[:2])
    words = ("…" if "/" in word or "\\" in word else word for word in text.split())
    return f"{type(error).__name__}: {' '.join(words)}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Running out of memory, told apart from other failures."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"torch: {_first_line(error)}") from error
    except RuntimeError as error:
        # The CPU allocator has no class of its own.
        if "DefaultCPUAllocator" in str(error):
            raise OutOfMemoryError(f"torch: out of host memory: {_first_line(error)}") from error
        raise
