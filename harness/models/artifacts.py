"""The model files that engines load: synthesised, exported, or the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.models import cache, synthesis
from harness.models.artifact_weights import gguf_header
from harness.models.presets import PRESETS
from harness.models.progress import labelled
from harness.models.quantised import obstacle
from harness.models.safetensors_file import tensor_table
from harness.models.sizes import NATIVE_FORMAT, weight_bytes
from harness.models.weights_id import SEED, expected_id, weights_id
from results.safe_text import as_file_name

if TYPE_CHECKING:
    from pathlib import Path

    from backends.registry import Kind
    from harness.models.progress import Progress
    from harness.models.source import ModelSource


@dataclass(frozen=True)
class Artifact:
    """A model on disk, complete."""

    path: Path
    weights_id: str  # equal for the same weights, whatever the file's format
    weights_bytes: int  # of its tensors


def prepare(source: ModelSource, kind: Kind, weight_format: str | None, progress: Progress | None = None) -> Artifact:
    """The artifact that an engine loads: synthesised, exported or the user's own.

    Args:
        source: from `resolve`.
        kind: "hf" or "gguf".
        weight_format: "f32", "f16" or "bf16", of a GGUF that is exported. Hugging Face directories stay as they
            are, for engines convert while they load.
        progress: called with `(label, done_bytes, total_bytes)`.

    Raises:
        UserError: the disk is too small, or the source cannot become this kind.
    """
    if source.origin == "gguf" and (kind == "hf" or weight_format is not None):
        raise UserError(
            f"{source.path}: only llama.cpp reads a .gguf file, and as it is; give a Hugging Face directory"
        )
    if source.quantised_by and kind == "gguf":
        raise UserError(f"{source.path}: llama.cpp: {obstacle(source.quantised_by, 'llama.cpp')}")
    name = weights_id(source, progress)
    cache.check_room(disk_needed(source, kind, weight_format))
    if kind == "hf":
        path = _hf_directory(source, progress)
        n_bytes = sum(entry.n_bytes for entry in tensor_table(path).values())
    else:
        path = _gguf_file(source, weight_format or NATIVE_FORMAT, progress)
        n_bytes = sum(tensor.n_bytes for tensor in gguf_header(path).tensors)
    return Artifact(path, name, n_bytes)


def disk_needed(source: ModelSource, kind: Kind, weight_format: str | None) -> int:
    """Bytes of tensors that writing this artifact takes; 0 where it exists, as far as `file_stem` can tell."""
    if kind == "hf":
        path, weight_format = _hf_path(source), NATIVE_FORMAT
    else:
        weight_format = weight_format or NATIVE_FORMAT
        path = _gguf_path(source, weight_format)
    return 0 if path.exists() else weight_bytes(source, weight_format)


def file_stem(source: ModelSource) -> str:
    """The beginning of the names of a model's files in the cache.

    Nothing is read for it: of a user's files, it is a name that nothing has yet until `weights_id` has read them.
    """
    return f"{as_file_name(source.name)}-{expected_id(source)[:12]}"


def _hf_directory(source: ModelSource, progress: Progress | None) -> Path:
    path = _hf_path(source)
    if source.path is None and not path.exists():
        with cache.locked(path):
            if not path.exists():  # another run may have written it while this one waited
                report = labelled(progress, f"writing {source.name}")
                synthesis.synthesise(PRESETS[source.name], path, seed=SEED, progress=report)
    return path


def _gguf_file(source: ModelSource, weight_format: str, progress: Progress | None) -> Path:
    path = _gguf_path(source, weight_format)
    if not path.exists():
        from harness.models import gguf_export  # noqa: PLC0415  # needs an extra

        with cache.locked(path):
            if not path.exists():
                report = labelled(progress, f"exporting {source.name} to GGUF, {weight_format}")
                with cache.written_whole(path) as partial:
                    if source.path is None:
                        checkpoint = gguf_export.synthetic(file_stem(source), PRESETS[source.name], SEED)
                        gguf_export.write(checkpoint, partial, weight_format, progress=report)
                    else:
                        gguf_export.export(source.path, partial, weight_format, report)
    return path


def _hf_path(source: ModelSource) -> Path:
    return source.path or cache.artifact_path(file_stem(source))


def _gguf_path(source: ModelSource, weight_format: str) -> Path:
    if source.origin == "gguf" and source.path is not None:
        return source.path
    return cache.artifact_path(f"{file_stem(source)}-{weight_format}.gguf")
