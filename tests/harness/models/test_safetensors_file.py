"""Safetensors headers, mapping and streaming, against the safetensors library."""

import contextlib
import json
import re
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from harness.errors import UserError
from harness.models.safetensors_file import StreamWriter, names_in_index, open_tensor, read_header, tensor_table

_TENSORS = {
    "half": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3) / 3,
    "single": torch.linspace(-1, 1, 5),
    "scalar": torch.tensor(7, dtype=torch.int64),
    "empty": torch.zeros((0, 4), dtype=torch.float16),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(_TENSORS, path, metadata={"format": "pt"})
    return path


def test_reads_what_the_library_wrote(file: Path) -> None:
    entries = read_header(file)
    assert entries.keys() == _TENSORS.keys()
    for name, tensor in _TENSORS.items():
        array = open_tensor(entries[name])
        assert array.shape == tuple(tensor.shape)
        if tensor.dtype == torch.bfloat16:
            assert array.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(array.astype(np.float64), tensor.double().numpy())


def test_the_library_reads_what_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    values = np.arange(10, dtype=np.float16)
    with StreamWriter(path, "F16", {"a": (2, 3), "b": (4,)}) as writer:
        writer.write(values[:4].data)  # a tensor may come in pieces, a piece may span tensors
        writer.write(values[4:].data)
    tensors = load_file(path)
    np.testing.assert_array_equal(tensors["a"].numpy(), values[:6].reshape(2, 3))
    np.testing.assert_array_equal(tensors["b"].numpy(), values[6:])


def test_a_stream_with_too_little_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 bytes written, the header promises 8"):  # noqa: SIM117
        with StreamWriter(tmp_path / "x", "F16", {"a": (4,)}) as writer:
            writer.write(np.zeros(1, np.float16).data)


def test_a_shorter_file_is_told(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"model\.safetensors: truncated"):
        read_header(file)


@given(st.integers(0, 400))
def test_any_truncation_is_told(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "model.safetensors"
    save_file(_TENSORS, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(length, len(whole) - 1)])
    with pytest.raises(UserError, match="truncated"):
        read_header(path)


@given(st.binary(max_size=200))
def test_garbage_is_told(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / "model.safetensors"
    path.write_bytes(garbage)
    with pytest.raises(UserError, match=r"model\.safetensors: "):
        read_header(path)


@pytest.mark.parametrize(
    "entry",
    [
        [],
        {"dtype": "F32", "shape": [2]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]},
        {"dtype": "X9", "shape": [1], "data_offsets": [0, 1]},
        {"dtype": [], "shape": [1], "data_offsets": [0, 1]},
        {"dtype": "F32", "shape": [float("inf")], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]},
    ],
)
def test_a_damaged_entry_is_told_with_the_tensor(tmp_path: Path, entry: object) -> None:
    header = json.dumps({"weight": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    with pytest.raises(UserError, match="tensor 'weight'"):
        read_header(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b'{"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}, '
         b'"b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}', r"tensor 'b' overlaps another"),
        (b"[" * 100_000, "its header is not JSON"),
        (b'{"a": {"dtype": "U8", "shape": [1000000], "data_offsets": [0, 1000000]}}', r"truncated: \d+ bytes"),
    ],
)  # fmt: skip
def test_an_impossible_header_is_told(tmp_path: Path, header: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    with pytest.raises(UserError, match=message):
        read_header(path)


def test_an_absurd_header_length_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**63) + bytes(64))
    with pytest.raises(UserError, match="it claims a header of 9223372036854775808 bytes"):
        read_header(path)


@given(st.data())
def test_any_flipped_byte_is_told_or_harmless(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("flipped") / "model.safetensors"
    save_file(_TENSORS, path)
    damaged = bytearray(path.read_bytes())
    header_bytes = 8 + struct.unpack("<Q", damaged[:8])[0]
    for place in data.draw(st.lists(st.integers(0, header_bytes - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    with contextlib.suppress(UserError):
        assert all(0 <= entry.offset <= len(damaged) - entry.n_bytes for entry in read_header(path).values())


def test_a_sharded_model_is_one_table(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "one.safetensors")
    save_file({"b": torch.ones(3)}, tmp_path / "two.safetensors")
    save_file({"c": torch.ones(3)}, tmp_path / "not-in-the-index.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert tensor_table(tmp_path).keys() == {"a", "b"}
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(UserError, match=r"missing two\.safetensors, which model\.safetensors\.index\.json names"):
        tensor_table(tmp_path)


def test_no_weights_and_a_bad_index_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no \.safetensors file"):
        tensor_table(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for text in ("{", "[]", '{"weight_map": {"a": 1}}', '{"weight_map": {"a": []}}', "[" * 100_000):
        index.write_text(text)
        with pytest.raises(UserError, match="not a readable index of the weights' files"):
            tensor_table(tmp_path)


@pytest.mark.parametrize("outside", ["../x.safetensors", "/etc/passwd", "a/../../x.safetensors"])
def test_an_index_names_files_of_its_own_directory(tmp_path: Path, outside: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": outside}}))
    with pytest.raises(UserError, match=re.escape(f"names {outside}, which lies outside")):
        names_in_index(index)
