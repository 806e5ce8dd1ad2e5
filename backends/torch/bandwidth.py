"""Reading memory and multiplying matrices with torch; the contract is in `backends.bandwidth`.

Not run on CUDA, XPU or MPS so far: development machines have none. On a CPU, `HOST_KERNELS` read, each in one thread
of the harness; `readers` works there too, so that the tests can run what a GPU runs.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from backends.bandwidth import ROW_BYTES
from backends.base import BackendError, OutOfMemoryError
from backends.torch.devices import choose_device
from backends.torch.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from backends.bandwidth import Multiply, Read

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def free_bytes(device: str) -> int:
    """Bytes that can be allocated on an accelerator; on MPS what Metal recommends, less what is taken."""
    choose_device(device)
    if device == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return torch.accelerator.get_memory_info(device)[0]


# A matrix of ROW_BYTES a row in bfloat16, whose bits also serve as int32 and float32.
KERNELS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "torch max int32": lambda matrix, _: matrix.view(torch.int32).amax(),
    "torch sum float32": lambda matrix, _: matrix.view(torch.float32).sum(),
    "torch row sums bfloat16": lambda matrix, _: matrix.sum(1),
    "torch matrix-vector bfloat16": torch.mv,
}


def readers(device: str, n_bytes: int) -> dict[str, Read]:
    """See `backends.bandwidth`; a kernel that the device does not have is left out."""
    choose_device(device)  # or an error that names those that exist
    with _one_line(f"cannot read {n_bytes} bytes on {device}"):
        columns = ROW_BYTES // 2
        matrix = torch.empty(n_bytes // ROW_BYTES, columns, dtype=torch.bfloat16, device=device).normal_()
        vector = torch.ones(columns, dtype=torch.bfloat16, device=device)

    def reader(kernel: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Read:
        def read(n_bytes: int, passes: int) -> None:
            rows = matrix[: n_bytes // ROW_BYTES]
            for _ in range(passes):
                kernel(rows, vector)
            _wait(device)

        return read

    found = {name: reader(kernel) for name, kernel in KERNELS.items()}
    return {name: read for name, read in found.items() if _runs(read)}


def multiplier(device: str, weight_format: str, n: int, n_threads: int) -> Multiply:
    """See `backends.bandwidth`. The product is that of a model's linear layer, in the format's type throughout."""
    choose_device(device)
    torch.set_num_threads(n_threads)
    with _one_line(f"cannot multiply {weight_format} matrices on {device}"):
        inputs, weights = (torch.randn(n, n, device=device).to(_DTYPES[weight_format]) for _ in range(2))

    def multiply(passes: int) -> None:
        with _one_line(f"cannot multiply {weight_format} matrices on {device}"), torch.inference_mode():
            for _ in range(passes):
                torch.nn.functional.linear(inputs, weights)
            _wait(device)

    return multiply


def _max(words: NDArray[np.float32], passes: int) -> Callable[[], Any]:
    torch.set_num_threads(1)  # of the calling thread: the harness has one for each core
    rows = torch.from_numpy(words).view(torch.int32).expand(passes, -1)
    return lambda: rows.amax(1).numpy()


def _dot(words: NDArray[np.float32], passes: int) -> Callable[[], Any]:
    torch.set_num_threads(1)
    # Two streams at once, which some memories feed faster than one.
    first, second = torch.from_numpy(words).view(2, -1)
    return lambda: [first.dot(second).item() for _ in range(passes)]


# Kernels for one thread, as `harness.machine.bandwidth.host` describes them.
HOST_KERNELS = {"torch max int32": _max, "torch dot of halves": _dot}


def _wait(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize(device)


def _runs(read: Read) -> bool:
    try:
        read(ROW_BYTES, 1)
    except (RuntimeError, TypeError):  # NotImplementedError is a RuntimeError; MPS raises TypeError for a type
        return False
    return True


@contextmanager
def _one_line(doing: str) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"torch: out of memory on the device: {doing}") from error
    except (RuntimeError, TypeError) as error:
        raise BackendError(f"torch: {doing}: {first_line(error)}") from error
