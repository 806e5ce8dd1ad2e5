"""Writes the file.

Everything is streamed: each piece of a tensor is cast or quantised and written block by block, so no tensor is ever in
memory as a whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.errors import UserError
from harness.models.gguf_export import mixture
from harness.models.gguf_export.checkpoint import of_directory
from harness.models.gguf_export.families import family_of
from harness.models.gguf_export.package import gguf_package
from harness.models.gguf_export.tensors import DTYPES, Layout, cast, exported
from harness.models.gguf_export.tokenizer import write_tokenizer
from harness.models.synthesis import GGUF_SYNTHETIC_KEY, SYNTHETIC_KEY
from results.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gguf import GGUFWriter
    from numpy.typing import NDArray

    from harness.models.gguf_export.checkpoint import Checkpoint
    from harness.models.gguf_export.config import Hyperparameters
    from harness.models.gguf_export.mixture import Quantiser
    from harness.models.gguf_export.tensors import ExportedTensor

_QUANTISED_FROM = "bf16"
# Small enough that a cast block stays in the CPU's cache until it is written: f32 four times faster than 16 MiB.
_BLOCK_BYTES = 1024 * 1024

# llama.cpp looks for tokens of Phi 3's tokenizer where a model's name says so, and refuses the file without them.
_PHI3 = re.compile("phi-?3", re.IGNORECASE)
_PHI3_TOKENS = {"<unk>", "<s>", "</s>", "<|endoftext|>"}


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
    write(of_directory(hf_directory), gguf_path, weight_format, progress=progress)


def write(
    checkpoint: Checkpoint,
    gguf_path: Path,
    weight_format: str,
    *,
    quantiser: Quantiser | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """The same for any checkpoint, also in one of llama.cpp's mixtures.

    A mixture's file is, byte for byte, what llama.cpp makes of the file in bf16.

    Args:
        checkpoint: the model.
        gguf_path: as for `export`.
        weight_format: "f32", "f16" or "bf16"; with a quantiser a mixture that needs no importance matrix.
        quantiser: llama.cpp's.
        progress: as for `export`.

    Raises:
        UserError: as `export`.
    """
    config = checkpoint.config
    if quantiser is None:
        tensors = exported(checkpoint, Layout.plain(config, weight_format))
    else:
        layout = Layout(config, family_of(config), _QUANTISED_FROM, mixture.formats(config, weight_format))
        tensors = sorted(exported(checkpoint, layout), key=lambda tensor: mixture.place(tensor.name))
    writer = gguf_package().GGUFWriter(gguf_path, family_of(config).architecture)
    _add_metadata(writer, checkpoint, weight_format, quantised=quantiser is not None)
    _write_header(writer, tensors)
    _append_data(writer, gguf_path, tensors, quantiser, progress)


def check_exportable(hf_directory: Path, weight_format: str) -> None:
    """Find out, from the headers alone, whether `export` could write this model.

    Raises:
        UserError: as `export` would.
    """
    checkpoint = of_directory(hf_directory)
    family_of(checkpoint.config).hyperparameters(checkpoint.config)
    exported(checkpoint, Layout.plain(checkpoint.config, weight_format))


def _add_metadata(writer: GGUFWriter, checkpoint: Checkpoint, weight_format: str, *, quantised: bool) -> None:
    gguf, config, family = gguf_package(), checkpoint.config, family_of(checkpoint.config)
    file_type = gguf.LlamaFileType["ALL_F32" if weight_format == "f32" else f"MOSTLY_{weight_format.upper()}"]
    if not quantised:
        writer.add_file_type(file_type)
    if SYNTHETIC_KEY in config:
        writer.add_int64(GGUF_SYNTHETIC_KEY, config[SYNTHETIC_KEY])
    _add_hyperparameters(writer, family.architecture, family.hyperparameters(config))
    tokens = write_tokenizer(writer, checkpoint.tokenizer, config)
    if not _PHI3.search(checkpoint.name) or set(tokens) >= _PHI3_TOKENS:
        writer.add_name(one_line(checkpoint.name))
    if quantised:  # at the end, where llama.cpp's own quantiser has them
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        writer.add_file_type(file_type)


def _add_hyperparameters(writer: GGUFWriter, architecture: str, values: Hyperparameters) -> None:
    for key, value in values.items():
        name = f"{architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)


def _write_header(writer: GGUFWriter, tensors: list[ExportedTensor]) -> None:
    """Everything up to the tensors' data."""
    types = gguf_package().GGMLQuantizationType
    for tensor in tensors:
        ggml_type = types[tensor.format.upper()]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.n_bytes, ggml_type)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    finally:
        writer.close()


def _append_data(
    writer: GGUFWriter,
    path: Path,
    tensors: list[ExportedTensor],
    quantiser: Quantiser | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Write the tensors' data after the header, each padded to the file's alignment."""
    total = sum(tensor.n_bytes for tensor in tensors)
    done = 0
    with path.open("ab") as file:
        writer.write_padding(file, file.tell())
        for tensor in tensors:
            for block in _encoded(tensor, quantiser):
                file.write(np.ascontiguousarray(block).view(np.uint8).data)
                done += block.nbytes
                if progress is not None:
                    progress(done, total)
            writer.write_padding(file, tensor.n_bytes)


def _encoded(tensor: ExportedTensor, quantiser: Quantiser | None) -> Iterator[NDArray[Any]]:
    if quantiser is not None and tensor.format not in DTYPES:
        yield from quantiser.encoded(_blocks(tensor), tensor.format, tensor.shape[-1])
        return
    try:
        for block in _blocks(tensor):
            yield cast(block, DTYPES[tensor.format])
    except FloatingPointError as error:
        raise UserError(f"{tensor.name} holds values too large for f16; export as bf16 or f32") from error


def _blocks(tensor: ExportedTensor) -> Iterator[NDArray[Any]]:
    for piece in tensor.pieces:
        array = piece()
        rows = max(1, _BLOCK_BYTES * len(array) // array.nbytes)
        for start in range(0, len(array), rows):
            yield array[start : start + rows]
