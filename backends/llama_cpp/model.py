"""A GGUF file that llama.cpp has loaded, and where its parts are.

Where things are is read from llama.cpp's log of its buffers (see `tiers`). Its summary "offloaded N/N layers to GPU"
counts what was asked, also on a machine without a GPU.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

from backends.base import BackendError
from backends.gguf_file_type import file_type_name
from backends.llama_cpp import engine_log, library, placement, tensor_sizes, tiers
from backends.llama_cpp.errors import failure
from backends.llama_cpp.parameters import ModelParameters

if TYPE_CHECKING:
    from pathlib import Path

    from backends.base import LoadRequest, Tier
    from backends.llama_cpp.tiers import Buffers


class Model:
    """One `llama_model`.

    Raises:
        OutOfMemoryError: the weights do not fit.
        BackendError: the file cannot be loaded, or the request cannot be honoured.

    Attributes:
        llama: the library.
        log: where it logs.
        handle: the `llama_model`; None when it is closed.
        vocab_size: tokens of the vocabulary.
        devices: those that it could use beside the CPU.
        buffers: bytes of the weights, by buffer name and use.
        settings: of the load, that can move a number.
    """

    def __init__(self, request: LoadRequest) -> None:
        self.llama, self.log = library.start()
        gpus, n_gpu_layers = placement.placement(request)
        self.devices = [gpu.accelerator for gpu in gpus]
        tensors = tensor_sizes.tensor_bytes(request.artifact)
        n_cpu_moe = sum(layer < request.n_cpu_moe for layer in tensor_sizes.expert_layers(tensors))
        if tensors and request.n_cpu_moe and not n_cpu_moe:
            raise BackendError(f"{request.artifact.name} has no experts in those layers: leave --n-cpu-moe out")
        self._params = ModelParameters(self.llama, request, gpus, n_gpu_layers)
        self.handle: int | None = self._loaded(request.artifact)
        self.vocab_size: int = self.llama.llama_vocab_n_tokens(self.llama.llama_model_get_vocab(self.handle))
        log = self.log.text()
        self.buffers = engine_log.buffer_bytes(log)
        self.settings: dict[str, Any] = {
            "load_mode": engine_log.load_mode(log),
            "use_extra_bufts": self._params.struct.use_extra_bufts,
            "split_mode": request.split_mode,
            "tensor_split": list(request.tensor_split),
            "n_cpu_moe": n_cpu_moe,
        }
        self._layer_devices = engine_log.layer_devices(log)
        self._layer_bytes = tensor_sizes.layer_bytes(tensors, len(self._layer_devices) - 1, request.n_cpu_moe)
        try:
            self._check(request)
        except BackendError:
            self.close()
            raise

    def _loaded(self, artifact: Path) -> int:
        self.log.attach(self.llama)  # again: llama.cpp has one log, and somebody else may have taken it
        self.log.clear()
        path = str(artifact)
        handle: int | None = self.llama.llama_model_load_from_file(os.fsencode(path), self._params.struct)
        if not handle:
            # The row that gets the message must not hold a home directory.
            raise failure(artifact.name, self.log.take_errors().replace(path, artifact.name))
        return handle

    def _check(self, request: LoadRequest) -> None:
        found = self.weight_format()
        if request.weight_format not in {None, found}:
            raise BackendError(f"{request.artifact.name} holds {found} weights, not {request.weight_format}")
        on_gpu = tiers.layers_off_host(self.tiers(self.buffers))
        if request.device not in {"auto", "cpu"} and request.n_gpu_layers != 0 and not on_gpu:
            raise BackendError(
                f"llama.cpp put no layer on device {request.device!r}, which may lack kernels for {found} "
                "weights: use --device cpu"
            )

    @property
    def max_context(self) -> int | None:
        """The context length that the file states."""
        return self.llama.llama_model_n_ctx_train(self.handle) or None

    @property
    def n_params(self) -> int:
        """Parameters of the loaded tensors, a tied one once."""
        count: int = self.llama.llama_model_n_params(self.handle)
        return count

    @property
    def n_bytes(self) -> int:
        """Bytes of the loaded tensors, a tied one once."""
        size: int = self.llama.llama_model_size(self.handle)
        return size

    def weight_format(self) -> str:
        """The file's `general.file_type` by its usual name: "bf16", "q4_k_m", "f32"."""
        text = ctypes.create_string_buffer(16)
        if self.llama.llama_model_meta_val_str(self.handle, b"general.file_type", text, len(text)) < 0:
            return "unstated"
        return file_type_name(int(text.value)) or "unstated"

    def tiers(self, buffers: Buffers) -> tuple[Tier, ...]:
        """What each memory holds.

        Args:
            buffers: of the model and, where there is one, of the context.
        """
        return tiers.tiers(self._layer_devices, self._layer_bytes, buffers, self.devices)

    def close(self) -> None:
        """Free it."""
        if self.handle:
            self.llama.llama_model_free(self.handle)
            self.handle = None
