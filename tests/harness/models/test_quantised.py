"""Which engine reads what: told before anything is loaded, and true of the engines themselves."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Any

import mlx_lm
import pytest

from backends import torch as torch_backend
from backends.base import BackendError, LoadRequest
from harness.errors import UserError
from harness.models import artifacts, source
from harness.models.quantised import method_of, obstacle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def mlx_4bit(tiny_hf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mlx") / "tiny-4bit"
    mlx_lm.convert(str(tiny_hf), str(path), quantize=True, q_bits=4, q_group_size=64)
    return path


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({}, None),
        ({"quantization_config": None}, None),
        ({"quantization": {"group_size": 64, "bits": 4}, "quantization_config": {"group_size": 64, "bits": 4}}, "mlx"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
        ({"text_config": {"quantization_config": {"quant_method": "fp8"}}}, "fp8"),
        ({"quantization": "none"}, None),
    ],
)
def test_what_quantised_a_checkpoint(config: dict[str, Any], method: str | None) -> None:
    assert method_of(config) == method


def test_torch_refuses_what_only_mlx_reads(mlx_4bit: Path) -> None:
    assert obstacle("mlx", "torch") == "transformers is not known to read weights quantised by mlx; mlx can"
    assert obstacle("mlx", "mlx") is None
    with pytest.raises(BackendError, match="cannot load tiny-4bit"):
        torch_backend.load(LoadRequest(mlx_4bit, None, device="cpu"))


def test_llama_cpp_is_not_given_a_quantised_directory(mlx_4bit: Path) -> None:
    model = source.resolve(str(mlx_4bit))
    with pytest.raises(UserError, match=r"llama\.cpp: it reads \.gguf files, .*quantised by mlx do not .*; mlx can"):
        artifacts.prepare(model, "gguf", None)
    assert artifacts.prepare(model, "hf", None).path == mlx_4bit


@pytest.mark.parametrize(
    ("method", "backend", "said"),
    [
        ("gptq", "mlx", "mlx-lm is not known to read weights quantised by gptq; torch can"),
        ("bitsandbytes", "llama.cpp", "bitsandbytes do not become one; torch can"),
        ("modelopt", "torch", "transformers is not known to read weights quantised by modelopt; mlx can"),
        ("torchao", "mlx", "mlx-lm is not known to read weights quantised by torchao; torch can"),
        ("hqq", "mlx", "mlx-lm is not known to read weights quantised by hqq; no engine here is known to"),
    ],
)
def test_the_engine_that_can_is_named(method: str, backend: str, said: str) -> None:
    assert re.search(re.escape(said), obstacle(method, backend) or "")


def test_the_package_that_transformers_lacks_is_named() -> None:
    has = importlib.util.find_spec("compressed_tensors") is not None
    said = obstacle("compressed-tensors", "torch")
    if has:
        assert said is None
    else:
        assert said is not None
        assert said.endswith("pip install compressed-tensors")
    if importlib.util.find_spec("gptqmodel") is None:
        assert (obstacle("awq", "torch") or "").endswith("; mlx can without")
