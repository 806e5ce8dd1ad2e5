"""Which tensors the GGUF file has, of a checkpoint's: their names, shapes and formats, and how their elements lie.

They are opened piece by piece and rearranged as views, so no tensor is ever in memory as a whole.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from harness.errors import UserError
from harness.models.gguf_export.config import head_dim, n_experts, n_layers
from harness.models.gguf_export.families import family_of
from harness.models.gguf_export.package import gguf_package
from harness.models.gguf_export.rope import rope_tensors
from harness.roofline.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gguf import TensorNameMap
    from numpy.typing import NDArray

    from harness.models.gguf_export.checkpoint import Checkpoint, Tensor
    from harness.models.gguf_export.config import Config
    from harness.models.gguf_export.families import Family

    Piece = Callable[[], NDArray[Any]]

DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
"""The plain formats."""

# Of old checkpoints: buffers that both engines compute themselves.
_BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
_EXPERT = re.compile(r"(?<=\.experts)\.(\d+)(?=\.)")
_ROTATED = re.compile(r"\.[qk]_proj\.")
_CONV1D = ("attn.c_attn.weight", ".c_proj.weight", ".c_fc.weight")
# Matrices that llama.cpp's own converter keeps at F32, as it does all vectors.
_F32_MATRICES = re.compile(r"position_embd\.weight|blk\.\d+\.ffn_gate_inp\.weight")


@dataclass(frozen=True)
class ExportedTensor:
    """One tensor of the GGUF file."""

    name: str
    shape: tuple[int, ...]
    format: str  # of its elements, by the roofline's name: "bf16", "q4_k"
    pieces: Sequence[Piece]  # opened one by one; their elements, in C order, are the tensor's

    @property
    def n_bytes(self) -> int:
        """In the file, without padding."""
        return FORMATS[self.format].n_bytes(math.prod(self.shape))


@dataclass(frozen=True)
class Layout:
    """How a checkpoint's tensors become those of the file.

    Attributes:
        config: of the model.
        family: of the model.
        rounded_to: the plain format whose numbers vectors hold.
        format_of: a matrix's element format, by its name in GGUF.
    """

    config: Config
    family: Family
    rounded_to: str
    format_of: Callable[[str], str]

    @classmethod
    def plain(cls, config: Config, weight_format: str) -> Layout:
        """All matrices in one of `DTYPES`.

        Raises:
            UserError: the model is of a family that this export does not know.
        """
        return cls(config, family_of(config), weight_format, lambda _: weight_format)


def exported(checkpoint: Checkpoint, layout: Layout) -> list[ExportedTensor]:
    """Every tensor of the GGUF file, in the checkpoint's order; the experts of a layer become one tensor.

    Raises:
        UserError: one is missing, of another type than F32, F16 or BF16, or none that llama.cpp's architecture has.
    """
    config, family = layout.config, layout.family
    tied = config.get("tie_word_embeddings", family.fixed.get("tie_word_embeddings"))
    if tied is False and "lm_head.weight" not in checkpoint.tensors:
        raise UserError("config.json: tie_word_embeddings = False, but there is no tensor lm_head.weight")
    names = _names(config, family)
    sources: dict[str, dict[str, Tensor]] = {}
    for name, tensor in checkpoint.tensors.items():
        if name.endswith(_BUFFERS) or (tied and name == "lm_head.weight"):
            continue
        if tensor.dtype not in ("F32", "F16", "BF16"):
            raise UserError(f"{tensor.origin}: tensor {name} is {tensor.dtype}, not F32, F16 or BF16")
        gguf_name = names.get_name(_EXPERT.sub("", name), try_suffixes=(".weight", ".bias"))
        if gguf_name is None or not name.endswith((".weight", ".bias")):
            raise UserError(f"{tensor.origin}: llama.cpp's {family.architecture!r} has no tensor like {name}")
        sources.setdefault(gguf_name, {})[name] = tensor
    tensors = [_tensor(name, parts, layout) for name, parts in sources.items()]
    for name, factors in rope_tensors(config).items():
        tensors.append(ExportedTensor(name, factors.shape, "f32", [partial(np.asarray, factors)]))
    return tensors


def _names(config: Config, family: Family) -> TensorNameMap:
    gguf = gguf_package()
    architectures = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names: TensorNameMap = gguf.get_tensor_name_map(architectures[family.architecture], n_layers(config))
    return names


def _tensor(name: str, parts: Mapping[str, Tensor], layout: Layout) -> ExportedTensor:
    family = layout.family
    first, tensor = next(iter(parts.items()))
    shape = tensor.shape[::-1] if family.conv1d and first.endswith(_CONV1D) else tensor.shape
    experts = sorted((int(match[1]), part) for part in parts if (match := _EXPERT.search(part)))
    if experts:
        count = n_experts(layout.config)
        if [index for index, _ in experts] != list(range(count)):
            raise UserError(f"{tensor.origin}: {len(experts)} experts like {first}, not {count}")
        pieces = [piece for _, part in experts for piece in _arranged(part, parts[part], layout)]
        return ExportedTensor(name, (count, *shape), layout.format_of(name), pieces)
    if len(parts) > 1:
        raise UserError(f"{tensor.origin}: {' and '.join(parts)} are the same tensor to llama.cpp")
    pieces = _arranged(first, tensor, layout)
    if len(shape) == 1 or _F32_MATRICES.fullmatch(name):
        offset = 1 if family.norms_less_one and name.endswith("norm.weight") else 0
        pieces = [partial(_widened, piece, layout.rounded_to, offset) for piece in pieces]
        return ExportedTensor(name, shape, "f32", pieces)
    return ExportedTensor(name, shape, layout.format_of(name), pieces)


def _arranged(name: str, tensor: Tensor, layout: Layout) -> list[Piece]:
    """A tensor's pieces in the order of elements that llama.cpp expects, not yet read."""
    if layout.family.conv1d and name.endswith(_CONV1D):
        return [partial(_transposed, piece) for piece in tensor.pieces(tensor.shape[0])]
    if layout.family.rotates_pairs and _ROTATED.search(name):
        rows = head_dim(layout.config)
        return [partial(_interleaved, piece, rows) for piece in tensor.pieces(rows)]
    return list(tensor.pieces(1))


def _transposed(piece: Piece) -> NDArray[Any]:
    return piece().T


def _interleaved(piece: Piece, rows: int) -> NDArray[Any]:
    """The two halves of each head, row by row."""
    array = piece()
    halves = array.reshape(-1, 2, rows // 2, *array.shape[1:])  # [heads, 2, head_dim/2, …]
    return halves.swapaxes(1, 2)


def _widened(piece: Piece, rounded_to: str, offset: int) -> NDArray[Any]:
    """As F32, with the numbers of another format."""
    return cast(piece(), DTYPES[rounded_to]).astype(np.float32) + np.float32(offset)


def cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Round to nearest, ties to even; by way of F32, which holds every source exactly.

    Raises:
        FloatingPointError: a value is too large for the type.
    """
    if array.dtype == dtype:
        return array
    with np.errstate(over="raise"):
        rounded: NDArray[Any] = array.astype(np.float32).astype(dtype, copy=False)
    return rounded
