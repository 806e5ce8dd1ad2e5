"""llama.cpp through llama-cpp-python's low-level API: our own batch, `llama_decode`, an argmax on the host.

Where things are is read from llama.cpp's log of its buffers (see `tiers`). Its summary "offloaded N/N layers to GPU"
counts what was asked, also on a machine without a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import BackendError, EngineInfo, Facts, Memory, OutOfMemoryError, Session
from backends.llama_cpp import engine_log, experts, ggml, gpu_registry, overrides, placement, tiers
from backends.llama_cpp.batch import TokenBatch
from backends.llama_cpp.rpc import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from numpy.typing import NDArray

    from backends.base import Ids, LoadRequest, Logits, Tier
    from backends.llama_cpp.engine_log import EngineLog
    from backends.llama_cpp.gpu_registry import Gpu


def describe(rpc: tuple[str, ...] = ()) -> EngineInfo:
    """The installed llama-cpp-python, the instruction sets it was built for, and the devices it can use.

    Args:
        rpc: "HOST:PORT" of servers whose devices come first.

    Raises:
        BackendError: an endpoint cannot be used.
    """
    from backends.llama_cpp import quantise  # which needs this package

    version = engine()[0].__version__
    devices = [*connect(rpc), *gpu_registry.gpus()]
    accelerators = tuple(device.accelerator for device in devices)
    return EngineInfo(version, _build(), accelerators, quantised_formats=quantise.formats())


def load(request: LoadRequest) -> Session:
    """Load a GGUF file.

    `engine_options`: `use_extra_bufts` (bool), whether the CPU may repack the weights for its own kernels.

    Raises:
        OutOfMemoryError: the weights do not fit.
        BackendError: the file cannot be loaded, or the request cannot be honoured by this build.
    """
    placement.check(request)
    return LlamaCppSession(request)


class LlamaCppSession(Session):
    """One GGUF model, with one `llama_context` since the last `allocate`."""

    def __init__(self, request: LoadRequest) -> None:
        self._llama, self._log = engine()
        self._request = request
        self._context: int | None = None
        self._context_buffers: dict[str, dict[str, int]] = {}
        self._flash_attention: str | None = None
        self._watch: experts.Watch | None = None
        self._load_model(*placement.placement(request))
        self._vocab_size: int = self._llama.llama_vocab_n_tokens(self._llama.llama_model_get_vocab(self._model))
        try:
            self._check_loaded()
        except BackendError:
            self.close()
            raise

    def _load_model(self, devices: list[Gpu], n_gpu_layers: int) -> None:
        request = self._request
        self._devices = [device.accelerator for device in devices]
        tensors = tiers.tensor_bytes(request.artifact)
        self._n_cpu_moe = sum(layer < request.n_cpu_moe for layer in tiers.expert_layers(tensors))
        if tensors and request.n_cpu_moe and not self._n_cpu_moe:
            raise BackendError(f"{request.artifact.name} has no experts in those layers: leave --n-cpu-moe out")
        params = self._model_params = self._llama.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.use_extra_bufts = request.engine_options.get("use_extra_bufts", True)
        params.split_mode = placement.SPLIT_MODES[request.split_mode]
        # Always named: left to itself, llama.cpp takes whatever this process has registered.
        self._device_list = overrides.device_list(devices)
        params.devices = ctypes.addressof(self._device_list)
        if request.tensor_split:
            self._shares = overrides.shares(request.tensor_split, self._llama.llama_max_devices())
            params.tensor_split = self._shares
        if request.n_cpu_moe:
            self._overrides = overrides.experts_on_host(request.n_cpu_moe)
            params.tensor_buft_overrides = ctypes.addressof(self._overrides)
        self._log.attach(self._llama)  # again: llama.cpp has one log, and somebody else may have taken it
        self._log.clear()
        path = str(request.artifact)
        self._model = self._llama.llama_model_load_from_file(os.fsencode(path), self._model_params)
        if not self._model:
            # The row that gets the message must not hold a home directory.
            reason = self._log.take_errors().replace(path, request.artifact.name)
            raise _failure(request.artifact.name, reason)
        log = self._log.text()
        self._load_mode = engine_log.load_mode(log)
        self._model_buffers = engine_log.buffer_bytes(log)
        self._layer_devices = engine_log.layer_devices(log)
        self._layer_bytes = tiers.layer_bytes(tensors, len(self._layer_devices) - 1, request.n_cpu_moe)

    def _check_loaded(self) -> None:
        request, found = self._request, self._weight_format()
        if request.weight_format not in {None, found}:
            raise BackendError(f"{request.artifact.name} holds {found} weights, not {request.weight_format}")
        if request.device not in {"auto", "cpu"} and request.n_gpu_layers != 0 and not self._gpu_layers():
            raise BackendError(
                f"llama.cpp put no layer on device {request.device!r}, which may lack kernels for {found} "
                "weights: use --device cpu"
            )

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary."""
        return self._vocab_size

    @property
    def max_context(self) -> int | None:
        """The context length that the file states."""
        return self._llama.llama_model_n_ctx_train(self._model) or None

    def allocate(self, context_tokens: int, batch: int, *, kv_cache: bool = True) -> None:  # noqa: ARG002
        """Make a new `llama_context`; llama.cpp rounds each sequence up to a multiple of 256 tokens.

        Each sequence gets a stream of its own in the KV cache (`kv_unified` off), as in batched-bench. llama.cpp
        attends through its cache, so it makes one in any case.
        """
        if batch > self._request.n_batch:
            raise BackendError(f"{batch} sequences need a batch of as many tokens: -b is {self._request.n_batch}")
        self._free_context()
        params = self._llama.llama_context_default_params()
        params.n_ctx = context_tokens * batch
        params.n_seq_max = batch
        params.n_batch = self._request.n_batch
        params.n_ubatch = self._request.n_ubatch
        params.n_threads = params.n_threads_batch = self._request.n_threads
        params.offload_kqv = self._request.kv_offload
        params.flash_attn_type = placement.FLASH_ATTENTION[self._request.flash_attn]
        params.type_k = _ggml_type(self._kv_format(self._request.kv_k_format))
        params.type_v = _ggml_type(self._kv_format(self._request.kv_v_format))
        # As in llama-bench: a sliding window's cache holds the window, not the whole context.
        params.swa_full = False
        if self._watch:
            params.cb_eval = self._watch.callback
        self._context_params = params
        self._log.clear()
        self._context = self._llama.llama_init_from_model(self._model, params)
        if not self._context:
            raise _failure(f"{batch} x {context_tokens} tokens of context", self._log.take_errors())
        log = self._log.text()
        self._context_buffers = engine_log.buffer_bytes(log)
        self._flash_attention = engine_log.flash_attention(log)
        self._capacity: int = self._llama.llama_n_batch(self._context)
        self._batch = TokenBatch(self._capacity, batch)
        self._length = 0

    def reset(self, keep_tokens: int = 0) -> int:
        """Cut the KV cache; a sliding window or a recurrent state that has moved on cannot be cut, then 0."""
        memory = self._llama.llama_get_memory(self._context)
        self._length = min(keep_tokens, self._length)
        if self._length == 0 or not self._cut(memory, self._length):
            self._llama.llama_memory_clear(memory, False)
            self._length = 0
        return self._length

    def _cut(self, memory: int, keep: int) -> bool:
        # A sliding-window cache accepts any cut, also where the tokens before it have been overwritten.
        window = self._llama.llama_model_n_swa(self._model)
        oldest_needed = max(0, keep - window)
        return all(
            self._llama.llama_memory_seq_pos_min(memory, sequence) <= oldest_needed
            and self._llama.llama_memory_seq_rm(memory, sequence, keep, -1)
            for sequence in range(self._context_params.n_seq_max)
        )

    def prefill(self, tokens: Ids) -> Ids:
        """Chunks of `n_batch` tokens, one sequence after the other, as batched-bench fills them."""
        batch, n = tokens.shape
        is_last = np.arange(tokens.size) % n == n - 1
        ids = np.empty(batch, np.int32)
        for index, row in self._forward(tokens, is_last, self._capacity):
            ids[index // n] = self._logits_row(row).argmax()
        return ids

    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """One `llama_decode` a step, all sequences in it."""
        batch, steps = tokens.shape
        self._require_room(steps)
        by_step = np.ascontiguousarray(tokens.T)
        ids = np.empty(batch, np.int32)
        self._batch.fill(
            by_step[0],
            positions=np.full(batch, self._length, np.int32),
            sequences=np.arange(batch),
            outputs=np.ones(batch, np.bool_),
        )
        for step in range(steps):
            if step:
                self._batch.advance(by_step[step])
            self._decode()
            self._length += 1
            for row in range(batch):
                ids[row] = self._logits_row(row).argmax()
            yield ids

    def recompute(self, tokens: Ids, first: int) -> Iterator[Ids]:
        """Clear the cache and prefill, step by step."""
        for end in range(first, tokens.shape[1] + 1):
            self.reset()
            yield self.prefill(tokens[:, :end])

    def logits(self, tokens: Ids) -> Logits:
        """Like prefill, in chunks of `n_ubatch`: llama.cpp keeps room for every logit of a chunk."""
        batch, n = tokens.shape
        logits = np.empty((batch * n, self._vocab_size), np.float32)
        everywhere = np.ones(batch * n, np.bool_)
        for index, row in self._forward(tokens, everywhere, self._llama.llama_n_ubatch(self._context)):
            logits[index] = self._logits_row(row)
        return logits.reshape(batch, n, self._vocab_size)

    def experts_hit(self, tokens: Ids, first: int) -> NDArray[np.int64] | None:
        """In a context of its own, which has llama.cpp tell what it computes."""
        watch = self._watch = experts.Watch(self._llama)
        try:
            batch, n = tokens.shape
            self.allocate(n, batch)
            if first:
                self.prefill(tokens[:, :first])
            watch.on = True
            counts = [watch.take() for _ in self.decode(tokens[:, first:])]
        finally:
            self._watch = None
            self._free_context()
        return np.array(counts) if counts[0].size else None

    def _forward(
        self, tokens: Ids, outputs: np.ndarray[Any, np.dtype[np.bool_]], chunk: int
    ) -> Iterator[tuple[int, int]]:
        """Put `tokens` `[batch, n]` through the model, one sequence after the other.

        Yields:
            For each token of the flattened `tokens` whose logits are wanted: its index, and its row in the
            batch that has just been computed.
        """
        n = tokens.shape[1]
        self._require_room(n)
        flat = tokens.reshape(-1)
        sequences, positions = np.divmod(np.arange(flat.size), n)
        positions = (positions + self._length).astype(np.int32)
        for start in range(0, flat.size, chunk):
            part = slice(start, start + chunk)
            self._batch.fill(flat[part], positions[part], sequences[part], outputs[part])
            self._decode()
            for row in np.flatnonzero(outputs[part]):
                yield start + int(row), int(row)
        self._length += n

    def _decode(self) -> None:
        status = self._llama.llama_decode(self._context, self._batch.struct)
        if status == 1:
            raise BackendError(f"llama.cpp found no room in its KV cache for {self._batch.struct.n_tokens} tokens")
        if status != 0:
            raise _failure(f"llama_decode returned {status}", self._log.take_errors())

    def _logits_row(self, row: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """A view of the logits of one token of the batch; waits for the device."""
        pointer = self._llama.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(pointer, (self._vocab_size,))

    def _require_room(self, n: int) -> None:
        room = self._allocated_tokens() - self._length
        if n > room:
            raise BackendError(f"{n} tokens do not fit: the KV cache has room for {room} more a sequence")

    def facts(self) -> Facts:
        """Read from the loaded file and the engine's log."""
        llama, params = self._llama, self._model_params
        places = self._tiers()
        used = [tier for tier in places if tier.layers and tier.memory != "cpu"]
        unavailable = {}
        if self._flash_attention is None:
            unavailable["flash_attn"] = "llama.cpp decides when it allocates the KV cache"
        ids = ",".join(tier.memory for tier in used)
        totals = [device.memory_bytes for device in self._devices if device.id in ids.split(",")]
        if None in totals:
            unavailable["device_memory_bytes"] = "llama.cpp does not tell this device's memory"
        return Facts(
            backend_version=llama.__version__,
            engine_build=_build(),
            engine_mode="llama_decode",
            device=ids or "cpu",
            device_name=", ".join(tier.name for tier in used if tier.name) or None,
            device_memory_bytes=sum(total for total in totals if total) if totals and None not in totals else None,
            n_threads=self._request.n_threads,
            gpu_layers_effective=self._gpu_layers(),
            flash_attn=self._flash_attention,
            n_params=llama.llama_model_n_params(self._model),
            weight_format=self._weight_format(),
            weight_bytes=llama.llama_model_size(self._model),
            kv_k_format=self._kv_format(self._request.kv_k_format),
            kv_v_format=self._kv_format(self._request.kv_v_format),
            kv_allocated_tokens=self._allocated_tokens(),
            engine_settings={
                "load_mode": self._load_mode,
                "use_extra_bufts": params.use_extra_bufts,
                "split_mode": self._request.split_mode,
                "tensor_split": list(self._request.tensor_split),
                "n_cpu_moe": self._n_cpu_moe,
                "argmax": "host",
                "buffers": self._buffers(),
                **self._context_settings(),
            },
            tiers=places,
            unavailable=unavailable,
        )

    def _tiers(self) -> tuple[Tier, ...]:
        return tiers.tiers(self._layer_devices, self._layer_bytes, self._buffers(), self._devices)

    def _gpu_layers(self) -> int:
        return sum(len(tier.layers) for tier in self._tiers() if tier.memory != "cpu")

    def _context_settings(self) -> dict[str, Any]:
        if self._context is None:
            return {}
        params = self._context_params
        return {
            "n_batch": self._capacity,
            "n_ubatch": self._llama.llama_n_ubatch(self._context),
            "n_threads_batch": params.n_threads_batch,
            "n_seq_max": params.n_seq_max,
            "kv_unified": params.kv_unified,
            "offload_kqv": params.offload_kqv,
            "op_offload": params.op_offload,
            "swa_full": params.swa_full,
            "no_perf": params.no_perf,
        }

    def memory(self) -> Memory:
        """Bytes of the buffers that llama.cpp logged, right to 5 KiB each (see `engine_log`).

        It allocates them before the first token, so they are also the peak. What the driver and CUDA's scratch pool
        take is not logged, and not counted.
        """
        unavailable = {}
        buffers = self._buffers()
        device_bytes = tiers.device_bytes(buffers, self._devices)
        kv_bytes = sum(uses.get("kv", 0) for uses in buffers.values())
        if not device_bytes:
            unavailable["peak_device_bytes"] = "llama.cpp holds nothing on a GPU"
        if not kv_bytes:
            unavailable["kv_cache_bytes"] = "less than the 10 KiB that llama.cpp's log resolves"
        return Memory(device_bytes or None, kv_bytes or None, unavailable)

    def close(self) -> None:
        """Free the context and the model."""
        self._free_context()
        if self._model:
            self._llama.llama_model_free(self._model)
            self._model = None

    def _free_context(self) -> None:
        if self._context:
            self._llama.llama_free(self._context)
        self._context = None
        self._context_buffers = {}

    def _buffers(self) -> dict[str, dict[str, int]]:
        """Bytes by buffer name and use, those of the model and those of the context together."""
        both = self._model_buffers | self._context_buffers
        return {name: self._model_buffers.get(name, {}) | self._context_buffers.get(name, {}) for name in both}

    def _allocated_tokens(self) -> int:
        return self._llama.llama_n_ctx_seq(self._context) if self._context else 0

    def _weight_format(self) -> str:
        """The file's `general.file_type` by its usual name: "bf16", "q4_k_m", "f32"."""
        from gguf import LlamaFileType

        text = ctypes.create_string_buffer(16)
        if self._llama.llama_model_meta_val_str(self._model, b"general.file_type", text, len(text)) < 0:
            return "unstated"
        name: str = LlamaFileType(int(text.value)).name
        return name.removeprefix("ALL_").removeprefix("MOSTLY_").lower()

    def _kv_format(self, asked: str) -> str:
        return "f16" if asked == "auto" else asked


def _failure(what: str, reason: str) -> BackendError:
    kind = OutOfMemoryError if engine_log.tells_of_no_memory(reason) else BackendError
    return kind(f"{what}: {reason}")


def _ggml_type(kv_format: str) -> int:
    from gguf import GGMLQuantizationType

    return int(GGMLQuantizationType[kv_format.upper()])


@functools.cache
def engine() -> tuple[ModuleType, EngineLog]:
    """The library, started once a process, with its log led here instead of to the terminal."""
    import llama_cpp

    log = engine_log.EngineLog()
    log.attach(llama_cpp)
    log.lead_last_words()
    llama_cpp.llama_backend_init()
    return llama_cpp, log


@functools.cache
def _build() -> str:
    """What the library says of itself: `llama.cpp 0.5.0, ggml 0.25.3, CPU: AVX512 OPENMP`."""
    llama, _ = engine()
    info = " ".join(llama.llama_print_system_info().decode().split())
    on = info.replace(" = 1", "").replace(" : ", ": ").replace(" |", "")
    return f"llama.cpp {llama.llama_version().decode()}, ggml {ggml.version()}, {on.strip()}"
