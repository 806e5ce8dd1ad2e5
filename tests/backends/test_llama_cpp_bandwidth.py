"""llama.cpp's side of the bandwidth contract, on the CPU and over RPC: what a GPU runs, as far as a CPU allows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import psutil
import pytest

from backends import llama_cpp
from backends.bandwidth import ROW_BYTES
from backends.base import BackendError
from backends.llama_cpp import bandwidth, gpu_registry, rpc
from backends.llama_cpp.graphs import Matrices, Processor, Products

MIB = 2**20


@pytest.fixture(scope="module", params=["cpu", "rpc"])
def device(request, endpoint):
    """Its id, and the endpoints that it needs."""
    if request.param == "cpu":
        return "cpu", ()
    return llama_cpp.describe((endpoint,)).accelerators[0].id, (endpoint,)


@pytest.fixture
def memory(device, endpoint):
    gpu = gpu_registry.cpu() if device[0] == "cpu" else rpc.connect((endpoint,))[0]
    return Matrices(Processor(gpu, 1), capacity=10)


def matrix_of(memory, values, formats):
    matrix = memory.new(formats, *values.shape[::-1])
    matrix.fill(values)
    return matrix


def nearly(product):
    # The CPU rounds the inputs to the 8 bits of bfloat16.
    return pytest.approx(product, rel=2e-2, abs=2e-2 * float(np.abs(product).max()))


@pytest.mark.parametrize(("weight_format", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_a_product_is_of_the_rows_asked_of_each_matrix(memory, weight_format, dtype):
    random = np.random.default_rng(0)
    weights = [random.standard_normal((rows, 64)).astype(dtype) for rows in (5, 9)]
    inputs = random.standard_normal((2, 64)).astype(np.float32)
    factors = [(matrix_of(memory, each, [weight_format]), rows) for each, rows in zip(weights, (5, 3), strict=True)]
    products = Products(memory, weight_format, factors, matrix_of(memory, inputs, ["f32"]))
    products.compute(2)
    whole, part = products.results()
    assert whole == nearly(inputs @ weights[0].astype(np.float32).T)
    assert part == nearly(inputs @ weights[1][:3].astype(np.float32).T)


def test_a_matrix_is_copied_with_all_its_bytes_and_read_as_both_types(memory):
    values = np.random.default_rng(1).standard_normal((6, 32)).astype(ml_dtypes.bfloat16)
    first = matrix_of(memory, values, ["bf16", "f16"])
    second = memory.new(["bf16", "f16"], 32, 6)
    second.fill_from(first)
    ones = matrix_of(memory, np.ones((1, 32), np.float32), ["f32"])
    for weight_format, bits in (("bf16", values), ("f16", values.view(np.float16))):
        products = Products(memory, weight_format, [(second, 6)], ones)
        products.compute(1)
        assert products.results()[0][0] == nearly(bits.astype(np.float32).sum(1))


def test_every_size_up_to_the_whole_is_read(device):
    readers = bandwidth.readers(device[0], 33 * MIB, device[1])
    assert set(readers) == {"llama.cpp matrix-vector bfloat16", "llama.cpp matrix-vector float16"}
    for read in readers.values():
        for n_bytes in (33 * MIB, ROW_BYTES, 32 * MIB, 32 * MIB + ROW_BYTES):
            read(n_bytes, 2)


@pytest.mark.parametrize("rows", [1, 4095, 4096, 4097, 12_288])
def test_matrices_hold_all_the_rows(rows):
    heights = bandwidth._heights(rows * ROW_BYTES)
    assert sum(heights) == rows
    assert max(heights) <= 4096
    assert all(heights)


@pytest.mark.parametrize("weight_format", ["f32", "f16", "bf16"])
def test_matrices_are_multiplied_in_the_formats_type(device, weight_format):
    bandwidth.multiplier(device[0], weight_format, 64, 1, device[1])(2)


def test_memory_is_the_machines(device):
    total = psutil.virtual_memory().total
    assert 0 < bandwidth.free_bytes(*device) <= total * 1.01


def test_what_is_read_is_given_back():
    process = psutil.Process()
    bandwidth.readers("cpu", MIB)
    before = process.memory_info().rss
    for _ in range(4):
        bandwidth.readers("cpu", 256 * MIB)
    assert process.memory_info().rss - before < 128 * MIB


def test_an_unknown_device_is_an_error_of_one_line():
    for ask in (bandwidth.free_bytes, lambda name: bandwidth.readers(name, MIB)):
        with pytest.raises(BackendError, match="no device 'Vulkan9': it has cpu") as failure:
            ask("Vulkan9")
        assert "\n" not in str(failure.value)
