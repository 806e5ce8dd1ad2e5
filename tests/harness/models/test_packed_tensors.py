"""Quantised checkpoints: mlx-lm's own, loaded by MLX, and other tools' layouts against a pencil."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import mlx_lm
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, GptOssConfig, GptOssForCausalLM

from backends import mlx
from backends.base import LoadRequest
from harness.errors import UserError
from harness.models import sizes, source
from harness.models.artifact_weights import weights_of
from harness.models.packed_tensors import is_beside, parameters
from harness.models.safetensors_file import TensorEntry

if TYPE_CHECKING:
    from pathlib import Path

_PARAMS = 426_624
# Matrices: two tables of 512 × 128; of each of two layers 2 × 128 × 128, 2 × 64 × 128 and 3 × 128 × 256.
_TABLES, _LAYERS = 2 * 512 * 128, 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 128 * 256)
_VECTORS = 5 * 128


def _is_matrix_of_a_layer(name: str) -> bool:
    return name.endswith("_proj.weight")


# --- mlx-lm


_MLX: dict[str, tuple[dict[str, Any], float | None]] = {
    "8bit": ({"q_bits": 8, "q_group_size": 64}, 8 + 32 / 64),
    "6bit": ({"q_bits": 6, "q_group_size": 64}, 6 + 32 / 64),
    "4bit": ({"q_bits": 4, "q_group_size": 64}, 4 + 32 / 64),
    "3bit-g32": ({"q_bits": 3, "q_group_size": 32}, 3 + 32 / 32),
    "mxfp4": ({"q_mode": "mxfp4"}, 4 + 8 / 32),
    "mxfp8": ({"q_mode": "mxfp8"}, 8 + 8 / 32),
    "nvfp4": ({"q_mode": "nvfp4"}, 4 + 8 / 16),
    "mixed": ({"quant_predicate": "mixed_3_6"}, None),  # of several widths
}


@pytest.mark.parametrize("name", _MLX)
def test_mlx_counts_the_same(tiny_hf: Path, tmp_path: Path, name: str) -> None:
    options, bits = _MLX[name]
    mlx_lm.convert(
        str(tiny_hf), str(tmp_path / name), quantize=True, **({"q_group_size": None, "q_bits": None} | options)
    )
    model = source.resolve(str(tmp_path / name))
    assert model.quantised_by == "mlx"
    weights = weights_of(model, None)
    session = mlx.load(LoadRequest(tmp_path / name, None, device="cpu"))
    facts = session.facts()
    session.close()
    assert (weights.n_bytes, weights.n_params) == (facts.weight_bytes, facts.n_params)
    assert weights.n_params == _PARAMS
    if bits is not None:
        assert weights.n_bytes == (_PARAMS - _VECTORS) * bits / 8 + 2 * _VECTORS


def test_a_configuration_that_contradicts_packed_tensors_is_told(tiny_hf: Path, tmp_path: Path) -> None:
    mlx_lm.convert(str(tiny_hf), str(tmp_path / "4bit"), quantize=True, q_bits=4, q_group_size=64)
    path = tmp_path / "4bit" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 512}))
    with pytest.raises(UserError, match=r"in layer 0 have 147456 elements, but config\.json calls for 245760"):
        source.resolve(str(tmp_path / "4bit"))


# --- Other tools


def _gptq(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """4 bits, groups of 32: words run down the inputs, zero points along the outputs."""
    n_out, n_in = weight.shape
    return {
        "qweight": torch.zeros(n_in * 4 // 32, n_out, dtype=torch.int32),
        "qzeros": torch.zeros(n_in // 32, n_out * 4 // 32, dtype=torch.int32),
        "scales": torch.ones(n_in // 32, n_out, dtype=torch.float16),
        "g_idx": torch.arange(n_in, dtype=torch.int32) // 32,
    }


def _gptq_3bit(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    n_out, n_in = weight.shape
    return {
        "qweight": torch.zeros(n_in * 3 // 32, n_out, dtype=torch.int32),
        "qzeros": torch.zeros(n_in // 32, n_out * 3 // 32, dtype=torch.int32),
        "scales": torch.ones(n_in // 32, n_out, dtype=torch.float16),
    }


_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def _awq(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """4 bits, groups of 32, numbers -8 … 7 times a scale: words run along the outputs, in AWQ's order."""
    groups = weight.float().T.reshape(-1, 32, weight.shape[0])
    scales = (groups.abs().amax(1) / 7).clamp_min(1e-6).half()
    numbers = (groups / scales.float()[:, None]).round().clamp(-8, 7).to(torch.int64).reshape(-1, weight.shape[0]) + 8
    return {
        "qweight": _awq_words(numbers),
        "qzeros": _awq_words(torch.full_like(scales, 8, dtype=torch.int64)),
        "scales": scales,
    }


def _awq_words(numbers: torch.Tensor) -> torch.Tensor:
    eights = numbers.reshape(len(numbers), -1, 8)[..., list(_AWQ_ORDER)]
    words = (eights << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _fp8(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Scales by block of 128 × 128, as DeepSeek publishes them."""
    blocks = [math.ceil(size / 128) for size in weight.shape]
    return {"weight": weight.to(torch.float8_e4m3fn), "weight_scale_inv": torch.ones(*blocks)}


def _packed_int4(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """compressed-tensors' pack-quantized, groups of 32."""
    n_out, n_in = weight.shape
    return {
        "weight_packed": torch.zeros(n_out, n_in // 8, dtype=torch.int32),
        "weight_scale": torch.ones(n_out, n_in // 32, dtype=torch.bfloat16),
        "weight_shape": torch.tensor([n_out, n_in]),
    }


def _nvfp4(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """compressed-tensors' nvfp4-pack-quantized, groups of 16."""
    n_out, n_in = weight.shape
    return {
        "weight_packed": torch.zeros(n_out, n_in // 2, dtype=torch.uint8),
        "weight_scale": torch.ones(n_out, n_in // 16).to(torch.float8_e4m3fn),
        "weight_global_scale": torch.ones(1),
    }


def _modelopt(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    n_out, n_in = weight.shape
    return {
        "weight": torch.zeros(n_out, n_in // 2, dtype=torch.uint8),
        "weight_scale": torch.ones(n_out, n_in // 16).to(torch.float8_e4m3fn),
        "weight_scale_2": torch.ones(()),
        "input_scale": torch.ones(()),
    }


def _nf4(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """bitsandbytes: one column of bytes, a scale for 64 numbers."""
    return {
        "weight": torch.zeros(weight.numel() // 2, 1, dtype=torch.uint8),
        "weight.absmax": torch.ones(weight.numel() // 64),
        "weight.quant_map": torch.zeros(16),
        "weight.quant_state.bitsandbytes__nf4": torch.zeros(90, dtype=torch.uint8),
    }


def _torchao(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """As transformers saves what torchao has made; seen of 0.18, int8 with a scale to a row."""
    n_out, _ = weight.shape
    return {
        "_weight_qdata": torch.zeros_like(weight, dtype=torch.int8),
        "_weight_scale": torch.ones(n_out, 1),
        "_weight_zero_point": torch.zeros(n_out, 1, dtype=torch.int8),
    }


# What writes it, its quant_method, and bytes of the layers' matrices.
_OTHERS: dict[str, tuple[Any, str, float]] = {
    # 14 matrices: eight of 128 inputs in each … 12 of 128 inputs, 2 of 256: 12 × 128 + 2 × 256 indices of four bytes
    "gptq": (_gptq, "gptq", _LAYERS * (4 + (16 + 4) / 32) / 8 + 4 * (12 * 128 + 2 * 256)),
    "gptq-3bit": (_gptq_3bit, "gptq", _LAYERS * (3 + (16 + 3) / 32) / 8),
    "awq": (_awq, "awq", _LAYERS * (4 + (16 + 4) / 32) / 8),
    # Blocks of 128 × 128: of each layer 1 + 1 + 1 + 1 of attention and 3 × 2 of the feed-forward network.
    "fp8": (_fp8, "fp8", _LAYERS + 2 * (4 + 6) * 4),
    "int4": (_packed_int4, "compressed-tensors", _LAYERS * (4 + 16 / 32) / 8 + 14 * 16),
    "nvfp4": (_nvfp4, "compressed-tensors", _LAYERS * (4 + 8 / 16) / 8 + 14 * 4),
    "modelopt": (_modelopt, "modelopt", _LAYERS * (4 + 8 / 16) / 8 + 14 * 8),
    # Two layers of 128 + 64 + 64 + 128 + 256 + 256 + 128 rows.
    "torchao": (_torchao, "torchao", _LAYERS + 2 * 1024 * 5),
    "nf4": (_nf4, "bitsandbytes", _LAYERS * (4 + 32 / 64) / 8 + 14 * (16 * 4 + 90)),
}


def _requantised(tiny_hf: Path, directory: Path, name: str) -> Path:
    written, method, _ = _OTHERS[name]
    directory.mkdir()
    tensors: dict[str, torch.Tensor] = {}
    for key, weight in load_file(tiny_hf / "model.safetensors").items():
        if _is_matrix_of_a_layer(key):
            base = key.removesuffix("weight")
            tensors |= {base + last: value.contiguous() for last, value in written(weight).items()}
        else:
            tensors[key] = weight
    save_file(tensors, directory / "model.safetensors")
    config = json.loads((tiny_hf / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 32, "zero_point": True}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize("name", _OTHERS)
def test_what_other_tools_write_is_counted(tiny_hf: Path, tmp_path: Path, name: str) -> None:
    _, method, layer_bytes = _OTHERS[name]
    model = source.resolve(str(_requantised(tiny_hf, tmp_path / name, name)))
    assert model.quantised_by == method
    weights = weights_of(model, None)
    assert weights.n_params == _PARAMS
    assert weights.n_bytes == layer_bytes + 2 * (_TABLES + _VECTORS)


def test_mlx_reads_awq_and_counts_the_same_parameters(tiny_hf: Path, tmp_path: Path) -> None:
    path = _requantised(tiny_hf, tmp_path / "awq", "awq")
    tokens = np.arange(3, 67, dtype=np.int32)[None]
    answers = []
    for directory in (path, tiny_hf):
        session = mlx.load(LoadRequest(directory, None, device="cpu"))
        session.allocate(64, 1)
        answers.append(session.logits(tokens))
        assert session.facts().n_params == _PARAMS
        session.close()
    difference = np.linalg.norm(answers[0] - answers[1]) / np.linalg.norm(answers[1])
    assert difference < 0.3, "4 bits a weight: noise, not another model"


def test_experts_in_mxfp4_as_gpt_oss_was_published(tmp_path: Path) -> None:
    """Blocks of 32 numbers in 16 bytes, a scale of one byte each; transformers counts the parameters."""
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_local_experts": 4}
    config = GptOssConfig(**shape, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=320)
    model = GptOssForCausalLM(config).to(torch.bfloat16)
    tensors: dict[str, torch.Tensor] = {}
    expert_params = 0
    for name, tensor in model.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):  # [experts, in, out]
            n_experts, n_in, n_out = tensor.shape
            tensors[f"{name}_blocks"] = torch.zeros(n_experts, n_out, n_in // 32, 16, dtype=torch.uint8)
            tensors[f"{name}_scales"] = torch.zeros(n_experts, n_out, n_in // 32, dtype=torch.uint8)
            expert_params += tensor.numel()
        else:
            tensors[name] = tensor.contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    said = {**config.to_dict(), "quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "config.json").write_text(json.dumps(said))
    found = source.resolve(str(tmp_path))
    weights = weights_of(found, None)
    assert found.quantised_by == "mxfp4"
    assert weights.n_params == model.num_parameters()
    assert weights.n_bytes == 2 * (model.num_parameters() - expert_params) + expert_params * 17 // 32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool])
def test_the_masks_of_old_checkpoints_are_no_packed_numbers(tmp_path: Path, dtype: torch.dtype) -> None:
    config = GPT2Config(vocab_size=320, n_embd=64, n_layer=2, n_head=4, n_positions=256)
    model = GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors |= {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 256, 256, dtype=dtype) for i in range(2)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert sizes.n_params(source.resolve(str(tmp_path))) == model.num_parameters()


def test_an_unknown_packing_is_told(tiny_hf: Path, tmp_path: Path) -> None:
    path = _requantised(tiny_hf, tmp_path / "nvfp4", "modelopt")
    tensors = load_file(path / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith("weight_scale_2")}
    save_file(kept, path / "model.safetensors")
    with pytest.raises(UserError, match=r"_proj\.weight' holds U8 numbers, packed in a way that is not known here"):
        source.resolve(str(path))


@given(
    bits=st.sampled_from([2, 3, 4, 5, 6, 8]),
    group=st.sampled_from([32, 64, 128]),
    rows=st.integers(1, 64),
    groups=st.integers(1, 64),
    own=st.booleans(),
)
def test_mlx_groups_give_the_parameters(tmp_path_factory: pytest.TempPathFactory, **drawn: Any) -> None:
    """As MLX packs them: `bits` words of 32 bits for 32 numbers, a scale and a bias for each group."""
    bits, group, rows, groups, own = (drawn[name] for name in ("bits", "group", "rows", "groups", "own"))
    columns = group * groups
    path = tmp_path_factory.getbasetemp()

    def entry(dtype: str, n_columns: int, size: int) -> TensorEntry:
        return TensorEntry(path, dtype, (rows, n_columns), 0, rows * n_columns * size)

    table = {
        "a.weight": entry("U32", columns * bits // 32, 4),
        "a.scales": entry("BF16", groups, 2),
        "a.biases": entry("BF16", groups, 2),
    }
    said = {"bits": bits, "group_size": group}
    config = {"quantization": {"bits": 8, "group_size": 16, "a": said} if own else said}
    assert parameters(table, config) == {"a.weight": rows * columns, "a.scales": 0, "a.biases": 0}


@pytest.mark.parametrize(("quant_type", "n_params"), [("Int8WeightOnlyConfig", 640), ("Int4WeightOnlyConfig", 1280)])
def test_bytes_of_torchao_hold_what_its_configuration_says(tmp_path: Path, quant_type: str, n_params: int) -> None:
    table = {"a._weight_qdata": TensorEntry(tmp_path, "I8", (10, 64), 0, 640)}
    config = {"quantization_config": {"quant_type": {"default": {"_type": quant_type}}}}
    assert parameters(table, config) == {"a._weight_qdata": n_params}


def test_plain_names_are_no_scales() -> None:
    for name in ("model.norm.weight", "lm_head.weight", "h.0.attn.c_attn.bias", "model.layers.0.mlp.gate.weight"):
        assert not is_beside(name)
