"""The engines' side of the bandwidth contract, on the CPU: what a GPU runs, as far as a CPU allows."""

import importlib
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
import torch

from backends.bandwidth import ROW_BYTES
from backends.base import BackendError
from backends.torch import bandwidth as torch_bandwidth

MIB = 2**20


@pytest.fixture(params=["torch", "mlx"])
def engine(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not published for this system")
    return importlib.import_module(f"backends.{request.param}.bandwidth")


def _expected(bits: np.ndarray) -> dict[str, np.ndarray]:
    """What the kernels must give for a matrix of bfloat16, whose bits `bits` holds as int32."""
    rows = bits.view(ml_dtypes.bfloat16).astype(np.float64).sum(1)
    return {
        "max int32": bits.max(),
        "sum float32": bits.view(np.float32).astype(np.float64).sum(),
        "row sums bfloat16": rows,
        "matrix-vector bfloat16": rows,  # the vector is of ones
    }


def _results(engine: ModuleType, bits: np.ndarray) -> dict[str, np.ndarray]:
    columns = ROW_BYTES // 2
    if engine is torch_bandwidth:
        matrix = torch.from_numpy(bits.copy()).view(torch.bfloat16)
        ones = torch.ones(columns, dtype=torch.bfloat16)
        results = {name: kernel(matrix, ones) for name, kernel in engine.KERNELS.items()}
        return {name: (one.float() if one.dtype == torch.bfloat16 else one).numpy() for name, one in results.items()}
    import mlx.core as mx  # noqa: PLC0415

    with mx.stream(mx.cpu):
        matrix, ones = mx.array(bits).view(mx.bfloat16), mx.ones((columns,), dtype=mx.bfloat16)
        results = {name: kernel(matrix, ones) for name, kernel in engine.KERNELS.items()}
        return {
            name: np.array(one.astype(mx.float32) if one.dtype == mx.bfloat16 else one) for name, one in results.items()
        }


@pytest.mark.parametrize("n_rows", [1, 3, 128])
def test_the_kernels_read_the_whole_matrix(engine: ModuleType, n_rows: int) -> None:
    values = np.random.default_rng(n_rows).standard_normal((n_rows, ROW_BYTES // 2))
    bits = values.astype(ml_dtypes.bfloat16).view(np.int32)
    expected = _expected(bits)
    for name, result in _results(engine, bits).items():
        kernel = name.partition(" ")[2]
        if kernel == "max int32":
            assert result == expected[kernel]
        else:  # a sum of 4096 standard normals is about 64; bfloat16 has 8 bits
            assert np.allclose(result.astype(np.float64), expected[kernel], rtol=2**-7, atol=1.0), name


def test_every_kernel_reads_on_this_device(engine: ModuleType) -> None:
    readers = engine.readers("cpu", MIB)
    assert set(readers) == set(engine.KERNELS)
    for read in readers.values():
        read(MIB, 2)
        read(ROW_BYTES, 1)


def test_each_pass_reads_the_first_bytes_of_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []

    def note(matrix: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(matrix.shape))
        return matrix

    monkeypatch.setattr(torch_bandwidth, "KERNELS", {"note": note})
    read = torch_bandwidth.readers("cpu", MIB)["note"]
    shapes.clear()
    read(MIB // 2, 3)
    assert shapes == [(MIB // 2 // ROW_BYTES, ROW_BYTES // 2)] * 3


def test_a_kernel_that_torch_lacks_on_the_device_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(matrix: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("not implemented for 'MPS'")

    monkeypatch.setattr(torch_bandwidth, "KERNELS", {"lacking": lacking, "mv": torch.mv})
    assert set(torch_bandwidth.readers("cpu", MIB)) == {"mv"}


@pytest.mark.parametrize("weight_format", ["f32", "f16", "bf16"])
def test_matrices_are_multiplied_in_the_formats_type(engine: ModuleType, weight_format: str) -> None:
    engine.multiplier("cpu", weight_format, 64, 1)(2)


def test_torchs_product_is_that_of_a_linear_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[tuple[torch.Tensor, torch.Tensor]] = []
    monkeypatch.setattr(torch.nn.functional, "linear", lambda x, weight: products.append((x, weight)))
    torch_bandwidth.multiplier("cpu", "bf16", 64, 1)(3)
    assert len(products) == 3
    assert {(tuple(side.shape), side.dtype) for pair in products for side in pair} == {((64, 64), torch.bfloat16)}


def test_an_unknown_device_is_an_error_of_one_line(engine: ModuleType) -> None:
    device = "cuda:7" if engine is torch_bandwidth else "Vulkan"
    for ask in (lambda: engine.readers(device, MIB), lambda: engine.multiplier(device, "f32", 64, 1)):
        with pytest.raises(BackendError) as failure:
            ask()
        assert "\n" not in str(failure.value)


def test_a_row_is_4096_values_of_16_bits() -> None:
    assert np.empty(4096, dtype=ml_dtypes.bfloat16).nbytes == ROW_BYTES
