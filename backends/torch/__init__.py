"""PyTorch, with the models of transformers: what is installed, and how a model is loaded.

Not run on CUDA, XPU or MPS so far: development machines have none. `benchmarks/gpu_check.py` checks CUDA in one go.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from backends.base import Accelerator, BackendError, EngineInfo, OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from backends.base import LoadRequest
    from backends.torch.session import TorchSession

_DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", None: "auto"}
_ONLY_THIS_DIRECTORY = {"local_files_only": True, "trust_remote_code": False}


def describe() -> EngineInfo:
    """The version of torch, the accelerators that it sees, and the model types and KV caches of transformers."""
    import torch
    from transformers import LlamaConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from backends.torch import caches
    from backends.torch.session import build

    return EngineInfo(
        torch.__version__,
        build(),
        _accelerators(),
        model_types=tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
        cache_kinds=caches.kinds(),
        cuda_cache_kinds=tuple(filter(caches.is_offloaded, caches.kinds())),
        kv_formats=caches.quantised_formats(LlamaConfig(num_hidden_layers=1)),
    )


def load(request: LoadRequest) -> TorchSession:
    """Load a Hugging Face directory onto one device.

    Raises:
        OutOfMemoryError: the weights do not fit.
        BackendError: an unknown architecture, a broken file, or a request that torch cannot honour.
    """
    import torch

    from backends.torch.session import TorchSession

    config = _config(request)
    # No layers on the GPU, and no device named: the CPU is meant.
    device = choose_device("cpu" if (request.device, request.n_gpu_layers) == ("auto", 0) else request.device)
    _refuse_what_torch_cannot(request, device, config)
    torch.set_num_threads(request.n_threads)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index or 0)
    try:
        # transformers loads straight to a device only with accelerate. Moved tensor by tensor, each host copy is
        # freed at once, so that unified memory never holds the model twice.
        return TorchSession(_model(request, config).to(device), request)
    except torch.OutOfMemoryError as error:
        line = str(error).splitlines()[0]
        raise OutOfMemoryError(f"torch: out of memory on {device} while loading: {line}") from error


def _config(request: LoadRequest) -> Any:
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with _told_in_one_line(request):
        return transformers.AutoConfig.from_pretrained(request.artifact, **_ONLY_THIS_DIRECTORY)


def _model(request: LoadRequest, config: Any) -> Any:
    import transformers

    with _told_in_one_line(request):
        found: Any = transformers.AutoModelForCausalLM.from_pretrained(
            request.artifact,
            config=config,
            dtype=_DTYPES[request.weight_format],
            output_loading_info=True,
            **_ONLY_THIS_DIRECTORY,
        )
    model, loaded = found
    if loaded["missing_keys"]:  # transformers would fill them with random numbers
        missing = sorted(loaded["missing_keys"])
        raise BackendError(f"{request.artifact.name} lacks {len(missing)} tensors, such as {missing[0]}")
    return model


@contextmanager
def _told_in_one_line(request: LoadRequest) -> Iterator[None]:
    """Whatever transformers raises about a model that it cannot read."""
    import transformers
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        line = str(error).strip().splitlines()[0]
        raise BackendError(
            f"transformers {transformers.__version__} cannot load {request.artifact.name}: {line}"
        ) from error


def _refuse_what_torch_cannot(request: LoadRequest, device: torch.device, config: Any) -> None:
    if request.weight_format not in _DTYPES:
        raise BackendError(f"the torch backend loads f64, f32, f16 and bf16 weights, not {request.weight_format}")
    if request.flash_attn != "auto":
        raise BackendError("the torch backend chooses its attention kernel itself: leave flash attention at auto")
    layers, asked = config.get_text_config().num_hidden_layers, request.n_gpu_layers
    whole = (asked <= 0) if device.type == "cpu" else (asked < 0 or asked >= layers)
    if not whole:
        raise BackendError(
            f"torch places the whole model ({layers} layers) on {device}: {asked} layers on a GPU are not possible"
        )


def choose_device(asked: str) -> torch.device:
    """The device of that name; "gpu": the first accelerator; "auto": the first accelerator, or else the CPU.

    Raises:
        BackendError: torch has no such device here.
    """
    import torch

    accelerators = [accelerator.id for accelerator in _accelerators()]
    if asked == "cpu" or (asked == "auto" and not accelerators):
        return torch.device("cpu")
    if asked in {"auto", "gpu"} and accelerators:
        return torch.device(accelerators[0])
    if asked in accelerators:
        return torch.device(asked)
    known = ", ".join(["cpu", *accelerators])
    raise BackendError(f"torch {torch.__version__} has no device {asked!r} here; it has: {known}")


def _accelerators() -> tuple[Accelerator, ...]:
    import torch

    if torch.backends.mps.is_available():
        memory = torch.mps.recommended_max_memory()
        return (Accelerator("mps", torch.backends.mps.get_name(), memory),)
    found = []
    for kind, module in (("cuda", torch.cuda), ("xpu", torch.xpu)):
        for index in range(module.device_count()):
            properties = module.get_device_properties(index)
            found.append(Accelerator(f"{kind}:{index}", properties.name, properties.total_memory))
    return tuple(found)
