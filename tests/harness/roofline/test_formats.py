"""Element formats, against llama.cpp's package, MLX's own arrays and a pencil."""

import gguf
import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.roofline.formats import FORMATS, element_bytes, element_format

_GGML = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
_MLX = sorted(name for name in FORMATS if "bit" in name)


def test_ggmls_blocks_are_the_packages() -> None:
    ours = {name: (element.block_elements, element.block_bytes) for name, element in FORMATS.items()}
    shared = ours.keys() & _GGML.keys()
    assert {name: ours[name] for name in shared} == {name: _GGML[name] for name in shared}
    # Ours alone, and the package's that no weights or caches are published in.
    assert ours.keys() - _GGML.keys() == {"fp8", "int8", "int4", "mxfp4-mlx", "nvfp4-mlx", *_MLX}
    assert _GGML.keys() - ours.keys() == {"i8", "i16", "i32", "i64", "q8_1", "q8_k", "q1_0"}


@pytest.mark.parametrize("mode", ["mxfp4", "nvfp4"])
def test_mlxs_microscaled_formats_are_mlxs(mode: str) -> None:
    arrays = mx.quantize(mx.zeros((2, 512), mx.bfloat16), mode=mode)
    assert sum(array.nbytes for array in arrays) == element_format(f"{mode}-mlx").n_bytes(2 * 512)


@pytest.mark.parametrize("name", _MLX)
def test_mlxs_groups_are_mlxs(name: str) -> None:
    bits, _, variant = name.partition("bit")
    dtype = mx.float32 if variant == "-f32" else mx.bfloat16
    group = int(variant.removeprefix("-g")) if variant.startswith("-g") else 64
    arrays = mx.quantize(mx.zeros((2, 512), dtype), group, int(bits))
    assert sum(array.nbytes for array in arrays) == element_format(name).n_bytes(2 * 512)


@pytest.mark.parametrize(
    ("name", "n_bytes"),
    [("f16", 2), ("q8_0", 34 / 32), ("Q4_K", 4.5 / 8), ("Q6_K", 6.5625 / 8), ("mxfp4", 4.25 / 8), ("4bit", 4.5 / 8)],
)
def test_bytes_of_an_element(name: str, n_bytes: float) -> None:
    assert element_bytes(name) == n_bytes


@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 2**40))
def test_a_block_that_is_begun_counts_whole(name: str, n_elements: int) -> None:
    element = FORMATS[name]
    n_bytes = element.n_bytes(n_elements)
    assert n_bytes % element.block_bytes == 0
    assert 0 <= n_bytes - n_elements * element.block_bytes / element.block_elements < element.block_bytes


def test_an_unknown_name_is_told_with_its_neighbours() -> None:
    with pytest.raises(ValueError, match=r"unknown format 'q8_O'; there is q8_0"):
        element_bytes("q8_O")
