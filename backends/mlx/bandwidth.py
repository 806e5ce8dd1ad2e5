"""Reading memory and multiplying matrices with MLX; the contract is in `backends.bandwidth`.

Not run on Metal or CUDA so far: development machines have neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from backends.bandwidth import ROW_BYTES
from backends.base import BackendError
from backends.mlx import devices
from backends.mlx.errors import engine_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.bandwidth import Multiply, Read

_DTYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def free_bytes(device: str) -> int:
    """Bytes that can be allocated: Metal's recommended working set, or the GPU's memory, less what MLX holds."""
    usable = devices.recommended_working_set() or devices.total_memory()
    if usable is None:
        raise BackendError(f"mlx does not tell how much memory {device} has")
    return usable - mx.get_active_memory()


# A matrix of ROW_BYTES a row in bfloat16, whose bits also serve as int32 and float32.
KERNELS: dict[str, Callable[[mx.array, mx.array], mx.array]] = {
    "mlx max int32": lambda matrix, _: matrix.view(mx.int32).max(),
    "mlx sum float32": lambda matrix, _: matrix.view(mx.float32).sum(),
    "mlx row sums bfloat16": lambda matrix, _: matrix.sum(1),
    "mlx matrix-vector bfloat16": lambda matrix, vector: matrix @ vector,
}


def readers(device: str, n_bytes: int) -> dict[str, Read]:
    """See `backends.bandwidth`."""
    devices.use(device)
    with engine_errors(f"cannot read {n_bytes} bytes on {device}"):
        columns = ROW_BYTES // 2
        matrix = mx.random.normal((n_bytes // ROW_BYTES, columns), dtype=mx.bfloat16)
        vector = mx.ones((columns,), dtype=mx.bfloat16)
        mx.eval(matrix, vector)

    def reader(kernel: Callable[[mx.array, mx.array], mx.array]) -> Read:
        def read(n_bytes: int, passes: int) -> None:
            rows = matrix[: n_bytes // ROW_BYTES]
            mx.eval([kernel(rows, vector) for _ in range(passes)])

        return read

    return {name: reader(kernel) for name, kernel in KERNELS.items()}


def multiplier(device: str, weight_format: str, n: int, n_threads: int) -> Multiply:  # noqa: ARG001 MLX takes none
    """See `backends.bandwidth`. The product is that of a model's linear layer, whose weights lie transposed."""
    devices.use(device)
    with engine_errors(f"cannot multiply {weight_format} matrices on {device}"):
        inputs, weights = (mx.random.normal((n, n)).astype(_DTYPES[weight_format]) for _ in range(2))
        mx.eval(inputs, weights)

    def multiply(passes: int) -> None:
        with engine_errors(f"cannot multiply {weight_format} matrices on {device}"):
            for _ in range(passes):  # queued one by one, so that each result can be dropped when it is there
                product = inputs @ weights.T
                mx.async_eval(product)
            mx.eval(product)

    return multiply
