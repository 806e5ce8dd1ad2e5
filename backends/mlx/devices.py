"""Where MLX can compute, and what it tells of that device."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import mlx.core as mx

from backends.base import Accelerator, BackendError, EngineInfo
from backends.mlx import formats


def describe() -> EngineInfo:
    """See `backends.mlx.describe`."""
    interface = accelerator()
    accelerators = (Accelerator(interface, name() or interface, total_memory()),) if interface else ()
    return EngineInfo(version("mlx"), build(), accelerators, quantised_formats=formats.formats())


def build() -> str:
    """What identifies the build beside mlx's version."""
    return f"mlx-lm {version('mlx-lm')}, {accelerator() or 'CPU'}"


def accelerator() -> str | None:
    """The GPU interface that this build of mlx can use here: "Metal", "CUDA" or none."""
    if mx.metal.is_available():
        return "Metal"
    return "CUDA" if mx.cuda.is_available() else None


def use(asked: str) -> mx.Device:
    """Make the device that `asked` means MLX's default.

    Raises:
        BackendError: this build of mlx does not have it.
    """
    interface = accelerator()
    if asked == "cpu" or (asked == "auto" and not interface):
        device = mx.Device(mx.cpu)
    elif interface and asked.lower() in {"auto", "gpu", interface.lower()}:
        device = mx.Device(mx.gpu)
    else:
        raise BackendError(f"this mlx has no device {asked}: it can use {interface or 'only the CPU'}")
    mx.set_default_device(device)
    return device


def name() -> str | None:
    """The GPU's product name, where MLX tells it."""
    return _info().get("device_name")


def total_memory() -> int | None:
    """The GPU's memory in bytes, where MLX tells it; the key depends on the interface."""
    info = _info()
    return info.get("memory_size") or info.get("total_memory")


def recommended_working_set() -> int | None:
    """Bytes that Metal recommends to keep resident; None elsewhere."""
    return _info().get("max_recommended_working_set_size")


def _info() -> dict[str, Any]:
    # MLX 0.30 tells it of Metal only.
    if hasattr(mx, "device_info"):
        return dict(mx.device_info(mx.gpu))
    return dict(mx.metal.device_info()) if mx.metal.is_available() else {}
