"""GGUF headers, against files that llama.cpp's own package writes and reads."""

import struct
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


@given(st.data())
def test_any_flipped_byte_is_told_or_harmless(
    file: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    damaged = bytearray(file.read_bytes())
    header_bytes = min(tensor.offset for tensor in read_gguf(file).tensors)
    for place in data.draw(st.lists(st.integers(0, header_bytes - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("flipped") / "model.gguf"
    path.write_bytes(damaged)
    try:
        header = read_gguf(path)
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017  # harmless flips raise nothing
    else:
        assert all(0 <= tensor.offset <= len(damaged) - tensor.n_bytes for tensor in header.tensors)


def _header(*tensors: bytes, metadata: tuple[bytes, ...] = ()) -> bytes:
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    return start + b"".join(metadata) + b"".join(tensors) + bytes(4096)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _row(name: str, shape: tuple[int, ...], element: int = 0, offset: int = 0) -> bytes:
    return _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, element, offset)


def _value(key: str, kind: int, value: bytes) -> bytes:
    return _string(key) + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (_header(_row("one", (32,), element=77)), r"tensor 'one' has element format 77, which the installed gguf"),
        (_header(_row("one", (32,), offset=64)), r"damaged .*tensor 'one' at byte 64, not 0"),
        (_header(_row("one", (32,)), _row("two", (32,))), r"damaged .*tensor 'two' at byte 0, not 128"),
        (_header(_row("one", (32,)), _row("one", (32,), offset=128)), r"damaged .*the name 'one' twice"),
        (_header(_row("one", (2**32, 2**32))), r"damaged .*a tensor of shape \(4294967296, 4294967296\)"),
        (_header(_row("one", (2**64 - 1,))), r"damaged .*a tensor of shape"),  # -1, read without a sign
        (_header(_row("one", (2**40,))), r"truncated: \d+ bytes, its header promises"),
        (_header(_row("one", (1, 1, 1, 1, 1))), r"damaged .*a tensor of 5 dimensions"),
        (_header(_row("one", (48,), element=8)), r"damaged .*tensor 'one' of Q8_0 with rows of 48"),
        (_header(_row("", (32,))), r"damaged .*an empty name"),
        (_header(metadata=(_value("key", 99, bytes(8)),)), r"damaged .*a value of type 99"),
        (_header(metadata=(_value("key", 9, struct.pack("<IQ", 9, 1)),)), r"damaged .*a value of type 9"),
        (_header(metadata=(_value("key", 9, struct.pack("<IQ", 8, 2**60)),)), r"damaged .*it ends too early"),
        (_header(metadata=(_value("general.alignment", 4, struct.pack("<I", 0)),)), r"damaged .*general\.alignment"),
        (_header(metadata=(_value("key", 4, bytes(4)), _value("key", 4, bytes(4)))), r"damaged .*the name 'key' twice"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**62, 0) + bytes(4096), r"damaged .*an empty name"),
    ],
)
def test_an_impossible_header_is_told(tmp_path: Path, contents: bytes, message: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(contents)
    with pytest.raises(UserError, match=message):
        read_gguf(path)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A model in three files, as the package splits it."""
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=1)
    writer.add_block_count(2)
    for i in range(3):
        writer.add_tensor(f"blk.{i}.weight", np.ones((i + 1, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(tmp_path.glob("*.gguf"))


def test_any_part_stands_for_all(parts: list[Path]) -> None:
    assert len(parts) == 3
    for part in parts:
        header = read_gguf(part)
        assert header.path == parts[0]
        assert [(tensor.path, tensor.name, tensor.n_bytes) for tensor in header.tensors] == [
            (path, f"blk.{i}.weight", 128 * (i + 1)) for i, path in enumerate(parts)
        ]
        assert header.metadata["llama.block_count"] == 2


def test_a_big_endian_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UserError, match="a big-endian GGUF file"):
        read_gguf(path)
