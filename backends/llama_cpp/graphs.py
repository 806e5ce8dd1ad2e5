"""Small ggml graphs of matrix products, computed on one device: how its memory is read, and how fast it multiplies."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.base import BackendError, OutOfMemoryError
from backends.llama_cpp.ggml import Int64, Pointer, Size, Text, element_type, function

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from backends.llama_cpp.gpu_registry import Gpu

_ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


class Processor:
    """A device that computes: its `ggml_backend_t`, freed with this object."""

    def __init__(self, gpu: Gpu, n_threads: int | None = None) -> None:
        self.name = gpu.accelerator.id
        self.device = gpu.handle
        self.handle: int = function("ggml_backend_dev_init", Pointer, Pointer, Text)(gpu.handle, None)
        if not self.handle:
            raise BackendError(f"llama.cpp cannot start device {self.name}")
        _free_with(self, "ggml_backend_free", self.handle)
        if n_threads is not None:
            self._set_threads(n_threads)

    def _set_threads(self, n_threads: int) -> None:
        registry = function("ggml_backend_dev_backend_reg", Pointer, Pointer)(self.device)
        procedure = function("ggml_backend_reg_get_proc_address", Pointer, Pointer, Text)
        if address := procedure(registry, b"ggml_backend_set_n_threads"):  # a GPU takes none
            ctypes.CFUNCTYPE(None, Pointer, ctypes.c_int)(address)(self.handle, n_threads)


class _GgmlInitParams(ctypes.Structure):
    """`ggml_init_params`."""

    _fields_ = (("mem_size", Size), ("mem_buffer", Pointer), ("no_alloc", ctypes.c_bool))


@dataclass(frozen=True)
class Matrix:
    """A matrix in a device's memory, with a `ggml_tensor` for each type that its bits can be read as."""

    columns: int
    rows: int
    tensors: dict[str, int]

    def fill(self, values: NDArray[Any]) -> None:
        """Copy values from the host, which have as many bytes as the matrix."""
        put = function("ggml_backend_tensor_set", None, Pointer, Pointer, Size, Size)
        put(next(iter(self.tensors.values())), values.ctypes.data, 0, values.nbytes)

    def fill_from(self, other: Matrix) -> None:
        """Copy another matrix of the same shape, on the device where it can."""
        source, target = (next(iter(one.tensors.values())) for one in (other, self))
        function("ggml_backend_tensor_copy", None, Pointer, Pointer)(source, target)


class Matrices:
    """Matrices in a device's memory, freed with this object."""

    def __init__(self, processor: Processor, capacity: int) -> None:
        """Make room for the descriptions of `capacity` tensors."""
        self.processor = processor
        self._context = _context(self, capacity * _tensor_overhead())

    def new(self, weight_formats: Sequence[str], columns: int, rows: int) -> Matrix:
        """A matrix whose bits may be read as any of these formats, which have elements of one size.

        Raises:
            OutOfMemoryError: the device lacks the memory.
        """
        n_bytes = rows * columns * _ELEMENT_BYTES[weight_formats[0]]
        buffer = function("ggml_backend_alloc_buffer", Pointer, Pointer, Size)(self.processor.handle, n_bytes)
        if not buffer:
            raise OutOfMemoryError(f"llama.cpp: no room for {n_bytes} bytes more on {self.processor.name}")
        _free_with(self, "ggml_backend_buffer_free", buffer)
        base = function("ggml_backend_buffer_get_base", Pointer, Pointer)(buffer)
        make = function("ggml_new_tensor_2d", Pointer, Pointer, ctypes.c_int, Int64, Int64)
        place = function("ggml_backend_tensor_alloc", ctypes.c_int, Pointer, Pointer, Pointer)
        tensors = {name: make(self._context, element_type(name), columns, rows) for name in weight_formats}
        for tensor in tensors.values():
            place(buffer, tensor, base)
        return Matrix(columns, rows, tensors)


class Products:
    """Products of matrices with one input, computed one after the other; freed with this object."""

    def __init__(
        self, memory: Matrices, weight_format: str, factors: Sequence[tuple[Matrix, int]], inputs: Matrix
    ) -> None:
        """Build the graph.

        Args:
            memory: which holds the matrices and the inputs.
            weight_format: as which the matrices are read.
            factors: each matrix, and how many of its rows are read, from the first.
            inputs: float32, with as many columns as the matrices.

        Raises:
            BackendError: the device has no such product.
            OutOfMemoryError: it lacks the memory for the results.
        """
        self._memory, self._inputs = memory, inputs  # the matrices live as long as the graph
        self._rows = [rows for _, rows in factors]
        n_nodes = 2 * len(factors) + 2  # a view and a product of each, and the matrices they come from
        graph_overhead: int = function("ggml_graph_overhead_custom", Size, Size, ctypes.c_bool)(2 * n_nodes, False)
        context = _context(self, n_nodes * _tensor_overhead() + graph_overhead)
        row_bytes = inputs.columns * _ELEMENT_BYTES[weight_format]
        view = function("ggml_view_2d", Pointer, Pointer, Pointer, Int64, Int64, Size, Size)
        multiply = function("ggml_mul_mat", Pointer, Pointer, Pointer, Pointer)
        self._results = [
            multiply(
                context,
                view(context, matrix.tensors[weight_format], matrix.columns, rows, row_bytes, 0),
                inputs.tensors["f32"],
            )
            for matrix, rows in factors
        ]
        self._place(context)
        self._graph = function("ggml_new_graph_custom", Pointer, Pointer, Size, ctypes.c_bool)(
            context, 2 * n_nodes, False
        )
        for result in self._results:
            function("ggml_build_forward_expand", None, Pointer, Pointer)(self._graph, result)

    def _place(self, context: int) -> None:
        processor = self._memory.processor
        supports = function("ggml_backend_dev_supports_op", ctypes.c_bool, Pointer, Pointer)
        if not all(supports(processor.device, result) for result in self._results):
            raise BackendError(f"llama.cpp has no such matrix product on {processor.name}")
        buffer = function("ggml_backend_alloc_ctx_tensors", Pointer, Pointer, Pointer)(context, processor.handle)
        if not buffer:
            raise OutOfMemoryError(f"llama.cpp: no room for a product's results on {processor.name}")
        _free_with(self, "ggml_backend_buffer_free", buffer)

    def compute(self, passes: int) -> None:
        """Compute all of them that often, and wait for the device."""
        processor = self._memory.processor
        compute = function("ggml_backend_graph_compute", ctypes.c_int, Pointer, Pointer)
        for _ in range(passes):
            if status := compute(processor.handle, self._graph):
                raise BackendError(f"llama.cpp: a matrix product failed on {processor.name} with status {status}")
        # Over RPC a graph is only sent: the server works in order, and answers when it is asked for a result.
        _read(self._results[-1], 1)

    def results(self) -> list[NDArray[np.float32]]:
        """Each product, `[inputs' rows, matrix's rows]`."""
        n = self._inputs.rows
        return [
            _read(result, n * rows).reshape(n, rows) for result, rows in zip(self._results, self._rows, strict=True)
        ]


def _read(tensor: int, n: int) -> NDArray[np.float32]:
    values = np.empty(n, np.float32)
    get = function("ggml_backend_tensor_get", None, Pointer, Pointer, Size, Size)
    get(tensor, values.ctypes.data, 0, values.nbytes)
    return values


def _free_with(owner: object, function_name: str, handle: int) -> None:
    freeing = weakref.finalize(owner, function(function_name, None, Pointer), handle)
    freeing.atexit = False  # the system frees all; over RPC, a server that has gone by then would end us with an error


def _context(owner: object, n_bytes: int) -> int:
    context: int = function("ggml_init", Pointer, _GgmlInitParams)(_GgmlInitParams(n_bytes, None, no_alloc=True))
    _free_with(owner, "ggml_free", context)
    return context


def _tensor_overhead() -> int:
    overhead: int = function("ggml_tensor_overhead", Size)()
    return overhead
