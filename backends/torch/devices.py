"""The devices that the installed torch can use, and what its build is."""

from __future__ import annotations

import importlib.metadata
import importlib.util

import torch
import transformers

from backends.base import Accelerator, BackendError

ASYNCHRONOUS = ("cuda", "xpu")
"""Device types whose copies to pinned memory and whose events need not stop the host."""


def build() -> str:
    """What identifies the build beside torch's version: transformers, torchao, and the accelerator's toolkit."""
    torchao = importlib.metadata.version("torchao") if importlib.util.find_spec("torchao") else None
    parts = {
        "transformers": transformers.__version__,
        "torchao": torchao,
        "CUDA": torch.version.cuda,
        "HIP": torch.version.hip,
        "XPU": torch.version.xpu,
    }
    return ", ".join(f"{name} {version}" for name, version in parts.items() if version)


def accelerators() -> tuple[Accelerator, ...]:
    """Every device beside the CPU."""
    if torch.backends.mps.is_available():
        memory = torch.mps.recommended_max_memory()
        return (Accelerator("mps", torch.backends.mps.get_name(), memory),)
    found = []
    for kind, module in (("cuda", torch.cuda), ("xpu", torch.xpu)):
        for index in range(module.device_count()):
            properties = module.get_device_properties(index)
            found.append(Accelerator(f"{kind}:{index}", properties.name, properties.total_memory))
    return tuple(found)


def choose_device(asked: str) -> torch.device:
    """The device of that name; "gpu": the first accelerator; "auto": the first accelerator, or else the CPU.

    Raises:
        BackendError: torch has no such device here.
    """
    known = [accelerator.id for accelerator in accelerators()]
    if asked == "cpu" or (asked == "auto" and not known):
        return torch.device("cpu")
    if asked in {"auto", "gpu"} and known:
        return torch.device(known[0])
    if asked in known:
        return torch.device(asked)
    has = ", ".join(["cpu", *known])
    raise BackendError(f"torch {torch.__version__} has no device {asked!r} here; it has: {has}")


def name_and_memory(device: torch.device) -> tuple[str | None, int | None]:
    """The product's name and the bytes of its memory; None of a CPU, which the harness knows better."""
    if device.type in ASYNCHRONOUS:
        properties = torch.get_device_module(device).get_device_properties(device)
        return properties.name, properties.total_memory
    if device.type == "mps":
        return torch.backends.mps.get_name(), torch.mps.recommended_max_memory()
    return None, None
