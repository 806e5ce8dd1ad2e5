"""GGUF headers, against files that llama.cpp's own package writes and reads."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.models.gguf_file import read_gguf


def _write(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_float32("general.quality", 0.5)
    writer.add_bool("general.good", True)
    writer.add_token_list(["a", "Ġb", "ü"])
    writer.add_array("general.numbers", [1, 2, 3])
    writer.add_tensor("one.weight", np.ones((4, 32), np.float32))
    quantised = gguf.quants.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("two.weight", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("gguf") / "model.gguf")


def test_metadata(file: Path) -> None:
    assert read_gguf(file).metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "general.quality": 0.5,
        "general.good": True,
        "tokenizer.ggml.tokens": ["a", "Ġb", "ü"],
        "general.numbers": (1, 2, 3),
    }


def test_tensors_lie_where_the_package_finds_them(file: Path) -> None:
    theirs = gguf.GGUFReader(file).tensors
    assert [
        (tensor.name, tensor.shape, tensor.format, tensor.offset, tensor.n_bytes) for tensor in read_gguf(file).tensors
    ] == [
        (tensor.name, tuple(tensor.shape), tensor.tensor_type.name, tensor.data_offset, tensor.n_bytes)
        for tensor in theirs
    ]


@given(st.data())
def test_any_truncation_is_told(file: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = file.read_bytes()
    end = max(tensor.offset + tensor.n_bytes for tensor in read_gguf(file).tensors)  # padding may follow
    path = tmp_path_factory.mktemp("cut") / "model.gguf"
    path.write_bytes(whole[: data.draw(st.integers(4, end - 1))])
    with pytest.raises(UserError, match="truncated"):
        read_gguf(path)


@given(st.binary(max_size=100))
def test_garbage_is_told(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / "model.gguf"
    for start in (b"", b"GGUF", b"GGUF\x03\x00\x00\x00"):
        path.write_bytes(start + garbage + b"\xff")
        with pytest.raises(UserError, match=r"model\.gguf: "):
            read_gguf(path)


def test_another_kind_of_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(100))
    with pytest.raises(UserError, match="not a GGUF file"):
        read_gguf(path)
