"""How many parameters each tensor of a quantised checkpoint holds: packed ones several to a word, their scales none.

Told by names, element types and shapes, as the tools that write such checkpoints leave them: mlx-lm; GPTQ and AWQ;
compressed-tensors; FP8 with scales by block; gpt-oss's MXFP4; NVIDIA's modelopt; bitsandbytes; torchao.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.models.safetensors_file import open_tensor

if TYPE_CHECKING:
    from harness.models.safetensors_file import TensorEntry

    Table = Mapping[str, TensorEntry]

_WORD_BITS = 32
# mlx-lm writes null where a tensor has its mode's usual group.
_MLX_GROUPS = {"affine": 64, "mxfp4": 32, "mxfp8": 32, "nvfp4": 16}
# What comes with packed numbers: scales, zero points, the order of columns, shapes, code books.
_BESIDE = re.compile(
    r"(?:\.scales|\.biases|\.qzeros|\.g_idx|\.SCB|\.global_scale|_scales"
    r"|\.(?:weight|input|output|k|v)_(?:scale|scale_inv|scale_2|zero_point|global_scale|shape|g_idx|format)"
    r"|\._\w+_(?:scale|zero_point|scale_and_zero|act_pre_scale|per_tensor_scale)"
    r"|\.weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.\w+))$"
)
_ONE_EACH = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8", "I64", "BOOL"})


def is_beside(name: str) -> bool:
    """Whether a tensor of this name holds scales or their like, and no parameters."""
    return _BESIDE.search(name) is not None


def parameters(table: Table, config: Mapping[str, Any]) -> dict[str, int]:
    """Parameters by tensor name.

    Args:
        table: every tensor of the checkpoint.
        config: its `config.json`; mlx-lm states the size of its groups only there.

    Raises:
        UserError: a tensor is packed in a way that is not known here.
    """
    return {name: 0 if is_beside(name) else _held(name, table, config) for name in table}


def _held(name: str, table: Table, config: Mapping[str, Any]) -> int:
    entry = table[name]
    base, _, last = name.rpartition(".")
    if last == "qweight" and f"{base}.qzeros" in table:  # GPTQ, AWQ: a zero point is as wide as a number
        columns = table[f"{base}.scales"].shape[-1]
        return entry.n_elements * columns // table[f"{base}.qzeros"].shape[-1]
    if last == "weight_packed" and f"{base}.weight_shape" in table:  # compressed-tensors
        rows, columns = (int(size) for size in open_tensor(table[f"{base}.weight_shape"]))
        return rows * columns
    if entry.dtype == "U32" and f"{base}.scales" in table:  # mlx-lm
        return table[f"{base}.scales"].n_elements * _mlx_group(base, config)
    if last.endswith("_qdata") and _is_torchao_int4(config):
        return 2 * entry.n_bytes
    if entry.dtype == "U8" and _is_fp4(name, base, table):
        return 2 * entry.n_elements
    if entry.dtype in _ONE_EACH or len(entry.shape) < 2 or last.endswith("bias"):  # old checkpoints: a mask, as bytes
        return entry.n_elements
    raise UserError(
        f"{entry.path}: tensor {name!r} holds {entry.dtype} numbers, packed in a way that is not known here; known are "
        "the ways of mlx-lm, GPTQ, AWQ, compressed-tensors, FP8, MXFP4, NVFP4, bitsandbytes and torchao"
    )


def _is_fp4(name: str, base: str, table: Table) -> bool:
    """Two numbers a byte: gpt-oss's experts, FP4 of compressed-tensors and of modelopt, bitsandbytes' 4-bit formats."""
    marks = (f"{name.removesuffix('_blocks')}_scales", f"{base}.weight_scale_2", f"{name}.absmax")
    return name.endswith(".weight_packed") or any(mark in table for mark in marks)


def _is_torchao_int4(config: Mapping[str, Any]) -> bool:
    """Its 4-bit numbers may lie in bytes like its 8-bit ones; only the configuration tells them apart."""
    said = config.get("quantization_config")
    return isinstance(said, Mapping) and "Int4" in json.dumps(said.get("quant_type"))


def _mlx_group(base: str, config: Mapping[str, Any]) -> int:
    """Numbers to a scale; a module's own entry goes before the model's."""
    whole = config.get("quantization") or config.get("quantization_config")
    whole = whole if isinstance(whole, Mapping) else {}
    own = whole.get(base)
    said = own if isinstance(own, Mapping) else whole
    mode = said.get("mode", "affine")
    group = said.get("group_size") or _MLX_GROUPS.get(mode if isinstance(mode, str) else "")
    if not isinstance(group, int) or group < 1:
        raise UserError(f"config.json: the quantisation of {base} has no group_size")
    return group
