"""Weights in fewer bits through torchao: which formats a device has, and a model's layers in one of them.

What is quantised is what transformers quantises by default: every linear layer but the LM head. Embeddings, the LM
head, norms and biases stay in bf16.

| format | on a CPU | on CUDA |
|---|---|---|
| int8, a scale to a row | torch's int8 product, in compiled steps | the product that torch.compile makes |
| int4, a scale and a zero point to 128 numbers | torch's int4 product for CPUs | tinygemm, compute capability 8.0 |
| fp8, a scale to a row, activations too | none | torch's scaled product, compute capability 8.9 |
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from backends.base import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("int8", "int4", "fp8")
_CAPABILITY = {"int8": (0, 0), "int4": (8, 0), "fp8": (8, 9)}  # of CUDA devices that have the kernel
_INT4_GROUPS = (128, 64, 32)  # numbers to a scale; the largest that divides every row is taken


def formats() -> tuple[str, ...]:
    """Those that some device here has kernels for; none without torchao."""
    if importlib.util.find_spec("torchao") is None:
        return ()
    devices = [torch.device("cpu"), *(torch.device("cuda", index) for index in range(torch.cuda.device_count()))]
    return tuple(name for name in NAMES if any(_obstacle(name, device) is None for device in devices))


def check(unquantised: Any, name: str, device: torch.device) -> None:
    """Refuse what could not be quantised, before gigabytes are read.

    Args:
        unquantised: A transformers model, whose weights are not looked at.
        name: One of `NAMES`.
        device: That it will run on.

    Raises:
        BackendError: torchao is not installed, the device has no kernel, or a matrix of the layers is none that
            torchao quantises.
    """
    if importlib.util.find_spec("torchao") is None:
        raise BackendError(f'torch needs torchao for {name} weights: pip install "tokenroof[torchao]"')
    if reason := _obstacle(name, device):
        raise BackendError(reason)
    if others := _other_matrices(unquantised):
        raise BackendError(
            f"torchao quantises linear layers, and {len(others)} of this model's matrices are in none, such as "
            f"{others[0]}; -w 8bit and 4bit of llama.cpp and MLX take them"
        )
    if name == "int4":
        _int4_group(unquantised)


def quantise(model: Any, name: str, device: torch.device) -> dict[str, Any]:
    """Move a bf16 model to a device, module by module, with its linear layers in another format.

    Args:
        model: A transformers model; changed in place.
        name: One of `NAMES`, that `check` has let through.
        device: That it will run on.

    Returns:
        What can move a number, for `engine_settings`.
    """
    from torchao.quantization import quantize_

    chosen = {id(layer) for _, layer in _linear_layers(model)}
    config = _config(name, model, device)
    quantize_(model, config, lambda module, _: id(module) in chosen, device=device)
    found = {"torchao": importlib.metadata.version("torchao"), "torchao_config": type(config).__name__}
    return found | ({"int4_group": config.group_size} if name == "int4" else {})


def _obstacle(name: str, device: torch.device) -> str | None:
    if device.type == "cuda":
        needed, has = _CAPABILITY[name], torch.cuda.get_device_capability(device)
        if has < needed:
            dotted, got = (".".join(map(str, version)) for version in (needed, has))
            return f"{name} weights need compute capability {dotted}; {device} has {got}"
        return None
    if device.type != "cpu":
        return f"torchao's {name} weights are known to run on a CPU and on CUDA, not on {device.type}"
    if name == "fp8":
        return "fp8 weights need a GPU of compute capability 8.9 (Ada, Hopper, Blackwell): a CPU has no product of them"
    return None


def _linear_layers(model: Any) -> Iterator[tuple[str, torch.nn.Linear]]:
    head = model.get_output_embeddings()
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            yield path, module


def _other_matrices(model: Any) -> list[str]:
    """Of layers that torchao would let be: GPT-2's convolutions, experts that lie in one tensor."""
    known: list[Any] = [layer for _, layer in _linear_layers(model)]
    known += [model.get_output_embeddings(), *(one for one in model.modules() if isinstance(one, torch.nn.Embedding))]
    weights = {id(module.weight) for module in known}
    return [name for name, one in model.named_parameters() if one.dim() > 1 and id(one) not in weights]


def _int4_group(model: Any) -> int:
    rows = {layer.in_features for _, layer in _linear_layers(model)}
    for group in _INT4_GROUPS:
        if all(length % group == 0 for length in rows):
            return group
    odd = min(length for length in rows if length % _INT4_GROUPS[-1])
    raise BackendError(f"int4 weights have groups of {_INT4_GROUPS[-1]} numbers or more, which divide no row of {odd}")


def _config(name: str, model: Any, device: torch.device) -> Any:
    """torchao's; it is kept from setting torch's global options, which are the session's to choose."""
    from torchao import quantization

    if name == "int8":
        return quantization.Int8WeightOnlyConfig(set_inductor_config=False)
    if name == "fp8":
        return quantization.Float8DynamicActivationFloat8WeightConfig(
            granularity=quantization.PerRow(), set_inductor_config=False
        )
    group = _int4_group(model)
    if device.type == "cuda":
        return quantization.Int4WeightOnlyConfig(
            group_size=group, int4_packing_format="tile_packed_to_4d", set_inductor_config=False
        )
    return _int4_for_cpus()(group_size=group, set_inductor_config=False)


def _int4_for_cpus() -> Any:
    """A prototype of torchao's, whose name has changed."""
    try:
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
    except ImportError as error:
        version = importlib.metadata.version("torchao")
        raise BackendError(f"torchao {version} has no int4 weights for a CPU; 0.18 has") from error
    return PrototypeInt4WeightOnlyConfig
