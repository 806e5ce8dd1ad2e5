"""The contract of an engine that can read a device's memory and multiply matrices there, for the ceilings.

As in `backends.base`, the engine measures nothing: the harness takes the time around calls that return only when the
device has done the work. An engine offers this in its module `bandwidth`, with three functions:

    free_bytes(device) -> int                               # of the device's memory, that can be allocated now
    readers(device, n_bytes) -> dict[str, Read]             # allocates n_bytes and fills them; name of kernel -> Read
    multiplier(device, weight_format, n, n_threads) -> Multiply  # allocates two matrices of n × n in the format

All raise BackendError where the engine has no such device or type, and OutOfMemoryError where it lacks the memory.
Every kernel reads all of the bytes and writes next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable

Read = Callable[[int, int], None]
"""`read(n_bytes, passes)`: read the first `n_bytes` (a multiple of `ROW_BYTES`) that often, one after the other."""

Multiply = Callable[[int], None]
"""`multiply(passes)`: multiply the two matrices that many times, one after the other."""

ROW_BYTES = 8192
"""A row of the matrix that the memory is seen as: 4096 values of 16 bits, as in a layer of a model."""
