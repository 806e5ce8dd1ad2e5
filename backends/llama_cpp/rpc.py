"""Other machines' devices, over llama.cpp's RPC: the protocol that its own `rpc-server` speaks, without passwords.

ggml ends the whole process where it cannot connect, so everything that can go wrong is tried here first.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import socket
import struct

from backends.base import Accelerator, BackendError
from backends.install import rpc_line
from backends.llama_cpp import ggml, gpu_registry
from backends.llama_cpp.ggml import Pointer, Size, Text
from backends.llama_cpp.gpu_registry import Gpu

# Of ggml-rpc.cpp: one byte of command, the size of what follows, and that: here what the connection can do (nothing).
_HELLO = struct.pack("<BQ24x", 14, 24)
_HELLO_ANSWER = struct.pack("<Q", 28)  # the size of the version and the capabilities
# The server speaks with one client at a time, and one that has just ended may take a moment.
_PATIENCE_S = 5.0
# What ggml calls the servers and their memories in its log, and how they are told without an address.
_readable: dict[str, str] = {}


def connect(endpoints: tuple[str, ...]) -> list[Gpu]:
    """The devices of the servers at these "HOST:PORT", in their order; each is registered with llama.cpp once.

    The devices get the names that ggml gives them, "RPC0", "RPC1", …. What their hardware is called the protocol does
    not tell, and their address would name a machine, so they are numbered.

    Raises:
        BackendError: this build has no RPC, an endpoint is malformed or named twice, or no server answers there.
    """
    for endpoint in endpoints:
        if endpoints.count(endpoint) > 1:
            raise BackendError(f"{endpoint} is named twice: each RPC server can be used once")
    return [gpu for endpoint in endpoints for gpu in _register(endpoint)]


def without_addresses(text: str) -> str:
    """The engine's words about RPC, fit for a row: no row may name a machine.

    A buffer is called by its device's number on its server, "RPC0[HOST:PORT]", and gets the device's id instead.
    """
    for name in sorted(_readable, key=len, reverse=True):
        text = text.replace(name, _readable[name])
    return text


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT".

    Raises:
        BackendError: it is none.
    """
    host, _, port = endpoint.partition(":")
    if not (host.strip() and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise BackendError(f"{endpoint!r} is no endpoint: write HOST:PORT, as in 127.0.0.1:50052 (IPv4)")
    return host, int(port)


def procedure(name: str) -> int:
    """Address of one of the RPC backend's own functions.

    Raises:
        BackendError: this llama-cpp-python was built without RPC.
    """
    registry = ggml.function("ggml_backend_reg_by_name", Pointer, Text)(b"RPC")
    if registry is None:
        raise BackendError(
            f"this llama-cpp-python was built without RPC: reinstall it with {rpc_line(platform.system())}"
        )
    address: int = ggml.function("ggml_backend_reg_get_proc_address", Pointer, Pointer, Text)(registry, name.encode())
    return address


@functools.cache
def _register(endpoint: str) -> tuple[Gpu, ...]:
    add_server = ctypes.CFUNCTYPE(Pointer, Text)(procedure("ggml_backend_rpc_add_server"))
    _say_hello(endpoint)
    _readable[endpoint] = "its endpoint"
    server = add_server(endpoint.encode())
    if server is None:
        raise BackendError(f"the tier at {endpoint} offers no device")
    ggml.function("ggml_backend_register", None, Pointer)(server)
    count: int = ggml.function("ggml_backend_reg_dev_count", Size, Pointer)(server)
    device = ggml.function("ggml_backend_reg_dev_get", Pointer, Pointer, Size)
    return tuple(_gpu(device(server, index)) for index in range(count))


def _say_hello(endpoint: str) -> None:
    """Make sure that a server that speaks this protocol answers, and is free."""
    host, port = split_endpoint(endpoint)
    try:
        with socket.create_connection((host, port), _PATIENCE_S) as connection:
            connection.settimeout(_PATIENCE_S)
            try:
                connection.sendall(_HELLO)
                answer = connection.recv(len(_HELLO_ANSWER), socket.MSG_WAITALL)
            except TimeoutError:
                raise BackendError(
                    f"the tier at {endpoint} does not answer: it serves one client at a time, and may have one; or "
                    "something else listens there"
                ) from None
    except OSError:
        raise BackendError(
            f"no tier answers at {endpoint}: start one there with tokenroof serve-tier --bind {endpoint}"
        ) from None
    if answer != _HELLO_ANSWER:
        raise BackendError(f"what answers at {endpoint} is no llama.cpp RPC server that this version can speak with")


def _gpu(handle: int) -> Gpu:
    name = gpu_registry.device_name(handle)
    _, total = gpu_registry.memory(handle)
    buffer_type = ggml.function("ggml_backend_dev_buffer_type", Pointer, Pointer)(handle)
    buffer_name: bytes = ggml.function("ggml_backend_buft_name", Text, Pointer)(buffer_type)
    _readable[buffer_name.decode()] = name
    return Gpu(handle, Accelerator(name, f"RPC device {name.removeprefix('RPC')}", total or None))
