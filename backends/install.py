"""The command that installs an engine so that it uses a vendor's GPU, as each engine's documentation has it."""

from __future__ import annotations

from typing import Literal

Vendor = Literal["nvidia", "apple", "amd"]

_REBUILD = "pip install --force-reinstall --no-cache-dir llama-cpp-python"
_LINES: dict[tuple[str, Vendor], str] = {
    ("torch", "nvidia"): "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
    ("torch", "amd"): "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/rocm7.0",
    ("torch", "apple"): "pip install --force-reinstall torch",
    ("mlx", "nvidia"): 'pip install "mlx[cuda13]"',
    ("mlx", "apple"): "pip install --force-reinstall mlx",
    ("llama.cpp", "nvidia"): f'CMAKE_ARGS="-DGGML_CUDA=on" {_REBUILD}',
    ("llama.cpp", "amd"): f'CMAKE_ARGS="-DGGML_HIP=on" {_REBUILD}',
    ("llama.cpp", "apple"): f'CMAKE_ARGS="-DGGML_METAL=on" {_REBUILD}',
}


def install_line(backend: str, vendor: Vendor, system: str) -> str | None:
    """The command for one engine on one vendor's GPU; None where the engine has no build for it.

    Args:
        backend: the engine.
        vendor: whose GPU it is.
        system: `platform.system()`: environment variables are set differently on Windows.
    """
    line = _LINES.get((backend, vendor))
    return line and _in_shell(line, system)


def rebuild_line(system: str) -> str:
    """How to build llama-cpp-python for the GPU that is usual on a system."""
    line = install_line("llama.cpp", "apple" if system == "Darwin" else "nvidia", system)
    others = "" if system == "Darwin" else " (AMD: -DGGML_HIP=on, others: -DGGML_VULKAN=on)"
    return f"{line}{others}"


def rpc_line(system: str) -> str:
    """How to build llama-cpp-python so that it can use, and be, another machine's memory and processor."""
    return _in_shell(f'CMAKE_ARGS="-DGGML_RPC=ON" {_REBUILD}', system)


def _in_shell(line: str, system: str) -> str:
    if line.startswith("CMAKE_ARGS") and system == "Windows":
        return line.replace('CMAKE_ARGS="', '$env:CMAKE_ARGS = "', 1).replace('" pip', '"; pip', 1)
    return line
