"""Reading memory and multiplying matrices with ggml on any of its devices; the contract is in `backends.bandwidth`.

It is how llama.cpp itself reads weights there: matrix-vector products. Each function takes the endpoints of RPC servers
besides, whose devices are "RPC0" and so on. "cpu" is the host, so that the tests can run what a GPU runs.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from backends.bandwidth import ROW_BYTES
from backends.base import BackendError
from backends.llama_cpp import gpu_registry, library
from backends.llama_cpp.graphs import Matrices, Processor, Products
from backends.llama_cpp.rpc import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.bandwidth import Multiply, Read
    from backends.llama_cpp.gpu_registry import Gpu

_COLUMNS = ROW_BYTES // 2
_MATRIX_ROWS = 4096  # 32 MiB, as a matrix of a model of billions of parameters
_KERNELS = {"bf16": "llama.cpp matrix-vector bfloat16", "f16": "llama.cpp matrix-vector float16"}
_NUMPY_TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def free_bytes(device: str, rpc: tuple[str, ...] = ()) -> int:
    """Bytes that can be allocated, as the device's driver or the RPC server tells."""
    free, total = gpu_registry.memory(_device(device, rpc).handle)
    if not total:
        raise BackendError(f"llama.cpp does not tell how much memory {device} has")
    return free


def readers(device: str, n_bytes: int, rpc: tuple[str, ...] = ()) -> dict[str, Read]:
    """See `backends.bandwidth`; a type that the device does not multiply is left out."""
    processor = Processor(_device(device, rpc), os.cpu_count() or 1)
    heights = _heights(n_bytes)
    memory = Matrices(processor, capacity=2 * len(heights) + 1)
    matrices = [memory.new(list(_KERNELS), _COLUMNS, rows) for rows in heights]
    # Bits of ordinary numbers as bfloat16, and then of finite ones as float16.
    values = np.random.default_rng(0).standard_normal((heights[0], _COLUMNS), np.float32).astype(ml_dtypes.bfloat16)
    for matrix in matrices:
        if matrix.rows == heights[0] and matrix is not matrices[0]:
            matrix.fill_from(matrices[0])
        else:
            matrix.fill(values[: matrix.rows])
    inputs = memory.new(["f32"], _COLUMNS, 1)
    inputs.fill(np.ones(_COLUMNS, np.float32))

    def products(weight_format: str, n_bytes: int) -> Products:
        return Products(memory, weight_format, list(zip(matrices, _heights(n_bytes), strict=False)), inputs)

    found = {name: _reader(functools.partial(products, weight_format)) for weight_format, name in _KERNELS.items()}
    return {name: read for name, read in found.items() if _runs(read)}


def multiplier(device: str, weight_format: str, n: int, n_threads: int, rpc: tuple[str, ...] = ()) -> Multiply:
    """See `backends.bandwidth`. As in llama.cpp, the activations are float32 whatever the weights are."""
    memory = Matrices(Processor(_device(device, rpc), n_threads), capacity=2)
    weights, inputs = memory.new([weight_format], n, n), memory.new(["f32"], n, n)
    values = np.random.default_rng(0).standard_normal((n, n), np.float32)
    weights.fill(values.astype(_NUMPY_TYPES[weight_format]))
    inputs.fill(values)
    return Products(memory, weight_format, [(weights, n)], inputs).compute


def _reader(products_of: Callable[[int], Products]) -> Read:
    graph = functools.cache(products_of)

    def read(n_bytes: int, passes: int) -> None:
        graph(n_bytes).compute(passes)

    return read


def _heights(n_bytes: int) -> list[int]:
    """Rows of each of the matrices that hold so many bytes: full ones, and then what is left."""
    full, rest = divmod(n_bytes // ROW_BYTES, _MATRIX_ROWS)
    return [_MATRIX_ROWS] * full + [rest] * bool(rest)


def _runs(read: Read) -> bool:
    try:
        read(ROW_BYTES, 1)
    except BackendError:
        return False
    return True


def _device(device: str, rpc: tuple[str, ...]) -> Gpu:
    library.start()  # its log is led away from the terminal
    if device == "cpu":
        return gpu_registry.cpu()
    return gpu_registry.named(device, [*connect(rpc), *gpu_registry.gpus()])
