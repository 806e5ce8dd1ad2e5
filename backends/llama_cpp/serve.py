"""The other side of an RPC tier: this machine's CPU or GPUs, lent to a llama.cpp in another process or machine."""

from __future__ import annotations

import ctypes
import signal
import socket
from typing import TYPE_CHECKING

from backends.base import Accelerator, BackendError
from backends.llama_cpp import gpu_registry, rpc
from backends.llama_cpp.ggml import Pointer, Size, Text

if TYPE_CHECKING:
    from backends.llama_cpp.gpu_registry import Gpu


def served(device: str = "auto") -> tuple[Accelerator, ...]:
    """What `serve` would lend: name and memory of each device.

    Args:
        device: "auto" (the GPUs, or else the CPU), "cpu", "gpu", or one GPU's id.

    Raises:
        BackendError: there is no such device.
    """
    return tuple(one.accelerator for one in _devices(device))


def serve(endpoint: str, n_threads: int, device: str = "auto") -> None:
    """Lend a device's memory and processor to whoever connects, one client at a time, until the process is ended.

    It has no password and trusts what it is sent. Nothing is kept on the disk. An interrupt (Ctrl+C) ends the
    process at once: no Python runs in between.

    Args:
        endpoint: "HOST:PORT" to listen at.
        n_threads: that a CPU computes with.
        device: as for `served`.

    Raises:
        BackendError: it cannot listen there, there is no such device, or this build has no RPC.
    """
    start_server = ctypes.CFUNCTYPE(None, Text, Text, Size, Size, Pointer)(
        rpc.procedure("ggml_backend_rpc_start_server")
    )
    handles = [one.handle for one in _devices(device)]
    _require_free(endpoint)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    devices = (Pointer * len(handles))(*handles)  # must outlive the call that takes its address
    start_server(endpoint.encode(), None, n_threads, len(handles), ctypes.addressof(devices))
    raise BackendError(f"the RPC server at {endpoint} ended: its last words are above")


def _devices(device: str) -> list[Gpu]:
    gpus = gpu_registry.usual_gpus()
    if device == "cpu" or (device == "auto" and not gpus):
        return [gpu_registry.cpu()]
    if gpus and device in {"auto", "gpu"}:
        return gpus
    return [gpu_registry.named(device, gpu_registry.gpus())]


def _require_free(endpoint: str) -> None:
    host, port = rpc.split_endpoint(endpoint)
    try:
        # As ggml listens: IPv4 only, also at a port that was in use a moment ago.
        with socket.socket(socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise BackendError(f"cannot listen at {endpoint}: {(error.strerror or str(error)).lower()}") from error
