"""Writes the file.

Everything is streamed: tensors are memory-mapped, rearranged as views, and cast and written block by block,
so no tensor is ever copied as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from harness.errors import UserError
from harness.models.gguf_export.config import head_dim, n_experts, n_layers
from harness.models.gguf_export.families import family_of
from harness.models.gguf_export.rope import rope_tensors
from harness.models.gguf_export.tokenizer import write_tokenizer
from harness.models.hf_config import read_config
from harness.models.safetensors_file import TensorEntry, open_tensor, tensor_table
from harness.models.synthesis import GGUF_SYNTHETIC_KEY, SYNTHETIC_KEY
from results.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gguf import GGUFWriter, TensorNameMap
    from numpy.typing import NDArray

    from harness.models.gguf_export.config import Config, Hyperparameters
    from harness.models.gguf_export.families import Family

_DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
_FILE_TYPES = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16"}
# Small enough that a cast block stays in the CPU's cache until it is written: f32 four times faster than 16 MiB.
_BLOCK_BYTES = 1024 * 1024

# Of old checkpoints: buffers that both engines compute themselves.
_BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
_EXPERT = re.compile(r"(?<=\.experts)\.(\d+)(?=\.)")
_ROTATED = re.compile(r"\.[qk]_proj\.")
_CONV1D = ("attn.c_attn.weight", ".c_proj.weight", ".c_fc.weight")
# llama.cpp looks for tokens of Phi 3's tokenizer where a model's name says so, and refuses the file without them.
_PHI3 = re.compile("phi-?3", re.IGNORECASE)
_PHI3_TOKENS = {"<unk>", "<s>", "</s>", "<|endoftext|>"}
# Matrices that llama.cpp's own converter keeps at F32, as it does all vectors.
_F32_MATRICES = re.compile(r"position_embd\.weight|blk\.\d+\.ffn_gate_inp\.weight")


@dataclass(frozen=True)
class _Tensor:
    """One tensor of the GGUF file."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: Sequence[Callable[[], NDArray[Any]]]  # opened one by one; their elements, in C order, are the tensor's

    @property
    def n_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


def export(
    hf_directory: Path,
    gguf_path: Path,
    weight_format: str,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the model of a Hugging Face directory as one GGUF file.

    Matrices are cast to the weight format, rounding to nearest, ties to even. Vectors, which llama.cpp wants
    as F32, hold the rounded values as well, so that every engine computes with the same numbers.

    Args:
        hf_directory: with `config.json` and safetensors, in one file or in shards.
        gguf_path: the new file; what it held before is lost, and after an error it is incomplete.
        weight_format: "f32", "f16" or "bf16".
        progress: called with the tensor bytes written so far, and in all.

    Raises:
        UserError: the model is of a kind that llama.cpp would compute differently or that this export does
            not know, a tensor is missing or does not fit the weight format, or gguf is not installed.
    """
    gguf = _gguf()
    config = read_config(hf_directory)
    family = family_of(config)
    tensors = _layout(hf_directory, config, family, weight_format)
    hyperparameters = family.hyperparameters(config)

    writer = gguf.GGUFWriter(gguf_path, family.architecture)
    writer.add_file_type(gguf.LlamaFileType[_FILE_TYPES[weight_format]])
    if SYNTHETIC_KEY in config:
        writer.add_int64(GGUF_SYNTHETIC_KEY, config[SYNTHETIC_KEY])
    _write_hyperparameters(writer, family.architecture, hyperparameters)
    tokens = write_tokenizer(writer, hf_directory, config)
    if not _PHI3.search(hf_directory.name) or set(tokens) >= _PHI3_TOKENS:
        writer.add_name(one_line(hf_directory.name))
    ggml_types = {dtype: gguf.GGMLQuantizationType[name.upper()] for name, dtype in _DTYPES.items()}
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape, tensor.dtype, tensor.n_bytes, ggml_types[tensor.dtype])
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    finally:
        writer.close()
    _append_data(writer, gguf_path, tensors, progress)


def check_exportable(hf_directory: Path, weight_format: str) -> None:
    """Find out, from the headers alone, whether `export` could write this model.

    Raises:
        UserError: as `export` would.
    """
    config = read_config(hf_directory)
    family = family_of(config)
    family.hyperparameters(config)
    _layout(hf_directory, config, family, weight_format)


def _write_hyperparameters(writer: GGUFWriter, architecture: str, values: Hyperparameters) -> None:
    for key, value in values.items():
        name = f"{architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)


def _gguf() -> Any:
    try:
        import gguf  # noqa: PLC0415  # an extra, like every engine
    except ImportError as error:
        raise UserError('writing GGUF needs the gguf package: pip install "tokenroof[llama]"') from error
    return gguf


def _layout(hf_directory: Path, config: Config, family: Family, weight_format: str) -> list[_Tensor]:
    """The file's tensors, in order."""
    gguf = _gguf()
    architectures = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(architectures[family.architecture], n_layers(config))
    return _tensors(config, family, tensor_table(hf_directory), names, _DTYPES[weight_format])


def _tensors(
    config: Config,
    family: Family,
    table: dict[str, TensorEntry],
    names: TensorNameMap,
    dtype: np.dtype[Any],
) -> list[_Tensor]:
    """Every tensor of the GGUF file, in the order of the table; the experts of a layer become one tensor."""
    tied = config.get("tie_word_embeddings", family.fixed.get("tie_word_embeddings"))
    if tied is False and "lm_head.weight" not in table:
        raise UserError("config.json: tie_word_embeddings = False, but there is no tensor lm_head.weight")
    sources: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in table.items():
        if name.endswith(_BUFFERS) or (tied and name == "lm_head.weight"):
            continue
        if entry.dtype not in ("F32", "F16", "BF16"):
            raise UserError(f"{entry.path}: tensor {name} is {entry.dtype}, not F32, F16 or BF16")
        gguf_name = names.get_name(_EXPERT.sub("", name), try_suffixes=(".weight", ".bias"))
        if gguf_name is None or not name.endswith((".weight", ".bias")):
            raise UserError(f"{entry.path}: llama.cpp's {family.architecture!r} has no tensor like {name}")
        sources.setdefault(gguf_name, {})[name] = entry
    tensors = [_tensor(name, entries, config, family, dtype) for name, entries in sources.items()]
    for name, factors in rope_tensors(config).items():
        tensors.append(_Tensor(name, factors.shape, factors.dtype, [partial(np.asarray, factors)]))
    return tensors


def _tensor(
    name: str, entries: dict[str, TensorEntry], config: Config, family: Family, dtype: np.dtype[Any]
) -> _Tensor:
    first, entry = next(iter(entries.items()))
    shape = entry.shape[::-1] if family.conv1d and first.endswith(_CONV1D) else entry.shape
    experts = sorted((int(match[1]), name) for name in entries if (match := _EXPERT.search(name)))
    if experts:
        count = n_experts(config)
        if [index for index, _ in experts] != list(range(count)):
            raise UserError(f"{entry.path}: {len(experts)} experts like {first}, not {count}")
        parts = [partial(_view, part, entries[part], config, family) for _, part in experts]
        return _Tensor(name, (count, *shape), dtype, parts)
    if len(entries) > 1:
        raise UserError(f"{entry.path}: {' and '.join(entries)} are the same tensor to llama.cpp")
    view = partial(_view, first, entry, config, family)
    if len(shape) == 1 or _F32_MATRICES.fullmatch(name):
        offset = 1 if family.norms_less_one and name.endswith("norm.weight") else 0
        return _Tensor(name, shape, _DTYPES["f32"], [lambda: _cast(view(), dtype).astype(np.float32) + offset])
    return _Tensor(name, shape, dtype, [view])


def _view(name: str, entry: TensorEntry, config: Config, family: Family) -> NDArray[Any]:
    """A tensor in the order of elements that llama.cpp expects, not yet read."""
    array = open_tensor(entry)
    if family.conv1d and name.endswith(_CONV1D):
        return array.T
    if family.rotates_pairs and _ROTATED.search(name):
        halves = array.reshape(-1, 2, head_dim(config) // 2, *array.shape[1:])  # [heads, 2, head_dim/2, …]
        return halves.swapaxes(1, 2)
    return array


def _append_data(
    writer: GGUFWriter, path: Path, tensors: list[_Tensor], progress: Callable[[int, int], None] | None
) -> None:
    """Write the tensors' data after the header, each padded to the file's alignment."""
    total = sum(tensor.n_bytes for tensor in tensors)
    done = 0
    with path.open("ab") as file:
        writer.write_padding(file, file.tell())
        for tensor in tensors:
            for block in _blocks(tensor):
                file.write(np.ascontiguousarray(block).view(np.uint8).data)
                done += block.nbytes
                if progress is not None:
                    progress(done, total)
            writer.write_padding(file, tensor.n_bytes)


def _blocks(tensor: _Tensor) -> Iterator[NDArray[Any]]:
    try:
        for part in tensor.parts:
            array = part()
            rows = max(1, _BLOCK_BYTES * len(array) // array.nbytes)
            for start in range(0, len(array), rows):
                yield _cast(array[start : start + rows], tensor.dtype)
    except FloatingPointError as error:
        raise UserError(f"{tensor.name} holds values too large for f16; export as bf16 or f32") from error


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Round to nearest, ties to even; by way of F32, which holds every source exactly."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="raise"):
        cast: NDArray[Any] = array.astype(np.float32).astype(dtype, copy=False)
    return cast
