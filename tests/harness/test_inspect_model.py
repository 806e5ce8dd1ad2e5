"""What a model's files hold, against llama.cpp, MLX's conversion and a pencil."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import gguf
import mlx_lm
import pytest

from harness.errors import UserError
from harness.inspect_model import ceilings, inspect_model
from harness.machine.bandwidth.curve import Curve, Measured, Point, Rate
from harness.machine.bandwidth.document import to_document
from harness.machine.bandwidth.measured import _path
from harness.machine.hardware import inspect as this_machine
from harness.models.artifact_weights import gguf_header

if TYPE_CHECKING:
    from pathlib import Path

_LAYER = 2 * 128 * 128 + 2 * 64 * 128 + 3 * 128 * 256
_PARAMS = 426_624  # 2 × 512 × 128 of tables, 2 layers, 5 vectors of 128


def test_a_gguf_file(tiny_gguf: Path) -> None:
    found = inspect_model(str(tiny_gguf))
    reader = gguf.GGUFReader(tiny_gguf)
    assert {each.name: (each.n_tensors, each.n_bytes) for each in found.types} == {
        kind.name: (len(same), sum(int(tensor.n_bytes) for tensor in same))
        for kind in {tensor.tensor_type for tensor in reader.tensors}
        if (same := [tensor for tensor in reader.tensors if tensor.tensor_type == kind])
    }
    assert [each.name for each in found.types] == ["F16", "F32"]
    assert found.weights.n_params == _PARAMS
    assert found.bits_per_weight == pytest.approx((16 * (_PARAMS - 640) + 32 * 640) / _PARAMS)
    # All but the table of input embeddings, of which a step reads one row.
    assert found.streamed_bytes == 2 * (2 * _LAYER + 512 * 128) + 4 * 640
    assert found.kv_bytes_per_token == 2 * 2 * 2 * 32 * 2  # keys and values, layers, heads, their length, two bytes
    assert found.full_kv_bytes == 512 * found.kv_bytes_per_token
    assert found.idle_bytes == 0


def test_a_directory_of_mlxs(tiny_hf: Path, tmp_path: Path) -> None:
    mlx_lm.convert(str(tiny_hf), str(tmp_path / "4bit"), quantize=True, q_bits=4, q_group_size=64)
    found = inspect_model(str(tmp_path / "4bit"))
    assert found.source.quantised_by == "mlx"
    assert [(each.name, each.n_tensors, each.n_params, each.n_bytes) for each in found.types] == [
        ("4-bit in U32", 16, _PARAMS - 640, (_PARAMS - 640) // 2),
        ("scales in BF16", 32, 0, 2 * 2 * (_PARAMS - 640) // 64),
        ("BF16", 5, 640, 2 * 640),
    ]
    assert found.bits_per_weight == pytest.approx((4.5 * (_PARAMS - 640) + 16 * 640) / _PARAMS)


def test_the_ceiling_is_bytes_over_bandwidth(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path))
    machine = replace(this_machine(), gpus=())
    found = inspect_model(str(tiny_gguf))
    assert ceilings(found.weights, machine) == []
    rate = {"read": Rate((50e9,))}
    points = tuple(Point(size, rate) for size in (2**16, 2**30))
    path = _path(machine, "cpu")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(to_document(Measured(Curve(points), {}, "2026-01-01T00:00:00Z"))))
    (ceiling,) = ceilings(found.weights, machine)
    assert ceiling.bandwidth_bytes_s == pytest.approx(50e9)
    assert ceiling.empty_tok_s == pytest.approx(50e9 / found.streamed_bytes, rel=1e-3)  # it reads no token, or its own
    assert ceiling.full_tok_s == pytest.approx(50e9 / (found.streamed_bytes + 511 * 512), rel=2e-3)


@pytest.mark.parametrize("spec", ["llama-3.1-8b", "config.json"])
def test_a_shape_without_files_is_told(spec: str, tiny_hf: Path, tmp_path: Path) -> None:
    if spec == "config.json":
        spec = str(tmp_path / spec)
        (tmp_path / "config.json").write_text((tiny_hf / "config.json").read_text())
    with pytest.raises(UserError, match="a shape without weights; see `tokenroof predict -m"):
        inspect_model(spec)


def test_the_header_alone_is_read(tiny_gguf: Path, tmp_path: Path) -> None:
    """A file whose tensors are a hole of zeros gives the same answer."""
    data = min(tensor.offset for tensor in gguf_header(tiny_gguf).tensors)
    content = tiny_gguf.read_bytes()
    hollow = tmp_path / "hollow.gguf"
    hollow.write_bytes(content[:data])
    with hollow.open("r+b") as file:
        file.truncate(len(content))
    whole = inspect_model(str(tiny_gguf))
    assert inspect_model(str(hollow)).types == whole.types
    assert inspect_model(str(hollow)).weights == whole.weights
