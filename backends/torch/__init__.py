"""PyTorch, with the models of transformers: what is installed, and how a model is loaded.

Not run on CUDA, XPU or MPS so far: development machines have none. `benchmarks/gpu_check.py` checks CUDA in one go.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from backends.base import BackendError, EngineInfo, OutOfMemoryError

if TYPE_CHECKING:
    import torch

    from backends.base import LoadRequest
    from backends.torch.session import TorchSession


def describe() -> EngineInfo:
    """The version of torch, the accelerators that it sees, and the model types and KV caches of transformers."""
    _quiet()
    import torch
    from transformers import LlamaConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from backends.torch import caches, devices, torchao_formats

    return EngineInfo(
        torch.__version__,
        devices.build(),
        devices.accelerators(),
        model_types=tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
        cache_kinds=caches.kinds(),
        cuda_cache_kinds=tuple(filter(caches.is_offloaded, caches.kinds())),
        kv_formats=caches.quantised_formats(LlamaConfig(num_hidden_layers=1)),
        quantised_formats=torchao_formats.formats(),
    )


def load(request: LoadRequest) -> TorchSession:
    """Load a Hugging Face directory onto one device.

    Raises:
        OutOfMemoryError: the weights do not fit.
        BackendError: an unknown architecture, a broken file, or a request that torch cannot honour.
    """
    _quiet()
    import torch

    from backends.torch import loading
    from backends.torch.devices import choose_device
    from backends.torch.errors import first_line
    from backends.torch.session import TorchSession

    config = loading.config_of(request.artifact)
    # No layers on the GPU, and no device named: the CPU is meant.
    device = choose_device("cpu" if (request.device, request.n_gpu_layers) == ("auto", 0) else request.device)
    _refuse_what_torch_cannot(request, device, config)
    loading.check(config, request.weight_format, device)
    torch.set_num_threads(request.n_threads)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index or 0)
    try:
        model, weights = loading.load(request.artifact, config, request.weight_format, device)
        return TorchSession(model, request, weights)
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"torch: out of memory on {device} while loading: {first_line(error)}") from error


def _quiet() -> None:
    """Keep libraries from the log that write to it when they are imported, or in each product of matrices."""
    for name in ("transformers", "torchao", "bitsandbytes"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _refuse_what_torch_cannot(request: LoadRequest, device: torch.device, config: Any) -> None:
    if request.flash_attn != "auto":
        raise BackendError("the torch backend chooses its attention kernel itself: leave flash attention at auto")
    layers, asked = config.get_text_config().num_hidden_layers, request.n_gpu_layers
    whole = (asked <= 0) if device.type == "cpu" else (asked < 0 or asked >= layers)
    if not whole:
        raise BackendError(
            f"torch places the whole model ({layers} layers) on {device}: {asked} layers on a GPU are not possible"
        )
