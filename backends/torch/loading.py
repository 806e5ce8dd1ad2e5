"""A Hugging Face directory as a model in memory: as it is, converted to a plain format, or quantised by torchao."""

from __future__ import annotations

import copy
import importlib.util
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import transformers

from backends.base import BackendError
from backends.torch import torchao_formats
from backends.torch.errors import loading_errors
from backends.torch.weights import plain_weights, quantised_weights

if TYPE_CHECKING:
    from pathlib import Path

    from backends.torch.weights import Weights

DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", None: "auto"}
_BESIDE_QUANTISED = "bfloat16"  # what torchao leaves unquantised; its int4 and fp8 take no other
_ONLY_THIS_DIRECTORY = {"local_files_only": True, "trust_remote_code": False}


def config_of(artifact: Path) -> Any:
    """The configuration of a directory.

    Raises:
        BackendError: transformers knows no such architecture, or a file is damaged.
    """
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with loading_errors(artifact.name):
        return transformers.AutoConfig.from_pretrained(artifact, **_ONLY_THIS_DIRECTORY)


def check(config: Any, weight_format: str | None, device: torch.device) -> None:
    """Refuse a format that these weights cannot have.

    Args:
        config: From `config_of`.
        weight_format: Of the request.
        device: That the model will run on.

    Raises:
        BackendError: there is no such format here, or not for this model.
    """
    known = (*filter(None, DTYPES), *torchao_formats.NAMES)
    if weight_format is not None and weight_format not in known:
        raise BackendError(f"the torch backend loads {', '.join(known)} weights, not {weight_format}")
    if (method := _method(config)) and weight_format is not None:
        raise BackendError(f"weights quantised by {method} cannot become {weight_format}")
    if weight_format in torchao_formats.NAMES:
        torchao_formats.check(_skeleton(config), weight_format, device)


def load(artifact: Path, config: Any, weight_format: str | None, device: torch.device) -> tuple[Any, Weights]:
    """A model on a device, and what its weights are there.

    Args:
        artifact: A Hugging Face directory.
        config: Its configuration.
        weight_format: That `check` has let through.
        device: To put it on.

    Raises:
        BackendError: a tensor is missing, a file is damaged, or transformers needs a package or a device for it.
    """
    if (method := _method(config)) is not None:
        return _load_quantised(artifact, config, method, device)
    if weight_format in torchao_formats.NAMES:
        model = _from_files(artifact, config, _BESIDE_QUANTISED)
        settings = torchao_formats.quantise(model, weight_format, device)
        weights = quantised_weights(model, weight_format, model)
        return model, replace(weights, settings={**weights.settings, **settings})
    # transformers loads straight to a device only with accelerate. Moved tensor by tensor, each host copy is freed at
    # once, so that unified memory never holds the model twice.
    model = _from_files(artifact, config, DTYPES[weight_format]).to(device)
    return model, plain_weights(model)


def _load_quantised(artifact: Path, config: Any, method: str, device: torch.device) -> tuple[Any, Weights]:
    unquantised = _skeleton(config)
    # Most methods pack their weights for the device that they are loaded to; their packages need accelerate.
    placed = importlib.util.find_spec("accelerate") is not None
    model = _from_files(artifact, config, "auto", **({"device_map": {"": str(device)}} if placed else {}))
    model = model if model.device == device else model.to(device)
    with loading_errors(artifact.name), torch.no_grad():
        # compressed-tensors expands its weights in the first forward pass.
        model(torch.zeros(1, 1, dtype=torch.int64, device=device), use_cache=False)
    return model, quantised_weights(model, method, unquantised)


def _from_files(artifact: Path, config: Any, dtype: str, **more: Any) -> Any:
    with loading_errors(artifact.name):
        found: Any = transformers.AutoModelForCausalLM.from_pretrained(
            artifact,
            config=config,
            dtype=dtype,
            use_safetensors=True,  # else pickles are read where they have the usual names and safetensors have not
            output_loading_info=True,
            **more,
            **_ONLY_THIS_DIRECTORY,
        )
    model, loaded = found
    if loaded["missing_keys"]:  # transformers would fill them with random numbers
        missing = sorted(loaded["missing_keys"])
        raise BackendError(f"{artifact.name} lacks {len(missing)} tensors, such as {missing[0]}")
    return model


def _method(config: Any) -> str | None:
    """What quantised the checkpoint, by Hugging Face's name; None where nothing did."""
    for level in (config, config.get_text_config()):
        said = getattr(level, "quantization_config", None)
        if said:
            return str(said.get("quant_method") or "mlx")
    return None


def _skeleton(config: Any) -> Any:
    """The model without weights, and without quantisation."""
    plain = copy.deepcopy(config)
    for level in (plain, plain.get_text_config()):
        if hasattr(level, "quantization_config"):
            del level.quantization_config
    build: Any = transformers.AutoModelForCausalLM.from_config
    with torch.device("meta"):
        return build(plain, trust_remote_code=False)
