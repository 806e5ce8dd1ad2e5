"""From a word on the command line to a model file that an engine can load."""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.errors import UserError
from harness.models import cache, named, synthesis
from harness.models.artifact_weights import check_tensors, gguf_header, hf_tensors, weights_of
from harness.models.gguf_parts import model_name, only_model_in
from harness.models.hf_config import CONFIG, config_path, read_config
from harness.models.pickles import refuse_pickles
from harness.models.presets import PRESETS
from harness.models.quantised import method_of, obstacle
from harness.models.safetensors_file import has_weights, tensor_table
from harness.models.tensors import SYNTHESISABLE
from harness.models.weights_id import SEED, weights_id
from harness.roofline.gguf_metadata import from_gguf_metadata
from harness.roofline.hf_config import from_hf_config
from harness.roofline.nominal import PLAIN
from harness.roofline.traffic import kv_bytes_per_token
from results.safe_text import as_file_name, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from backends.registry import Kind
    from harness.models.named import Place
    from harness.roofline.architecture import Architecture

    Progress = Callable[[str, int, int], None]

_NATIVE_FORMAT = "bf16"  # of synthetic weights, and of an export that states none


@dataclass(frozen=True)
class ModelSource:
    """What the user named, understood; nothing is written yet."""

    name: str  # preset name, directory name, file stem
    origin: Literal["preset", "hf", "gguf", "config"]  # "config": a config.json without weights
    path: Path | None  # the directory, the .gguf file or a configuration alone; None for a preset
    architecture: Architecture
    weights_origin: Literal["synthetic", "trained"]
    quantised_by: str | None = None  # of a Hugging Face directory that is quantised already: see `quantised.method_of`
    engine: str | None = None  # the only one that it is for; None: all (see `paired`)


@dataclass(frozen=True)
class Artifact:
    """A model on disk, complete."""

    path: Path
    weights_id: str  # equal for the same weights, whatever the file's format
    weights_bytes: int  # of its tensors


def resolve(spec: str, *, download: bool = False) -> ModelSource:
    """Understand what a user calls a model, for a run; only headers are read.

    Args:
        spec: as `resolve_shape`.
        download: fetch a Hugging Face repository that is not in its cache.

    Raises:
        UserError: there is no such model, its files are damaged or of another kind, or it has no weights and none can
            be synthesised.
    """
    source = resolve_shape(spec, download=download)
    if source.origin == "config" and source.path is not None:
        refuse_pickles(source.path)
        raise UserError(
            f"{source.path}: no .safetensors file beside config.json, and other weight formats are not read; "
            "a prediction needs none, a run does"
        )
    if source.path is None and not _can_run(source):
        family = source.architecture.model_type
        raise UserError(
            f"{source.name}: no weights can be synthesised for the family {family!r}, so this preset is for "
            "`tokenroof predict`; to run the model, give its Hugging Face directory or .gguf file"
        )
    return source


def _can_run(preset: ModelSource) -> bool:
    return preset.architecture.model_type in SYNTHESISABLE


def resolve_shape(spec: str, *, download: bool = False) -> ModelSource:
    """The same for what needs no weights: a `config.json`, or a directory with nothing else, will do as well.

    Args:
        spec: a preset's name; a Hugging Face directory, a .gguf file or a directory that has one; `ollama:NAME`,
            `lmstudio:PUBLISHER/NAME`, or a Hugging Face repository that is in its cache.
        download: as for `resolve`.

    Raises:
        UserError: there is no such model, or its files are damaged or of another kind.
    """
    if not spec.strip():
        raise UserError("-m needs a model: a preset, a Hugging Face directory or a .gguf file")
    if spec in PRESETS:
        return ModelSource(spec, "preset", None, from_hf_config(PRESETS[spec]), "synthetic")
    place = named.find(spec, download=download)
    if place.path.is_file():
        refuse_pickles(place.path)
        is_config = place.path.suffix == ".json"
        return _config_source(place) if is_config else _gguf_source(place.path, place.name)
    if has_weights(place.path):
        return _hf_source(place)
    gguf = only_model_in(place.path, spec)
    return _gguf_source(gguf, None) if gguf else _config_source(place)


def _hf_source(place: Place) -> ModelSource:
    directory = place.path
    config, tensors = read_config(directory), hf_tensors(directory)
    text = config.get("text_config")
    levels = [config, text] if isinstance(text, dict) else [config]
    if all(level.get("tie_word_embeddings") is None for level in levels):
        config["tie_word_embeddings"] = not any(name.endswith("lm_head.weight") for name in tensors)
    trained = synthesis.SYNTHETIC_KEY not in config
    weights_origin: Literal["synthetic", "trained"] = "trained" if trained else "synthetic"
    architecture = _shape(config, directory)
    check_tensors(directory, architecture)
    name = place.name or one_line(directory.resolve().name)
    return ModelSource(name, "hf", directory, architecture, weights_origin, method_of(config))


def _config_source(place: Place) -> ModelSource:
    path = place.path
    folder = path if path.is_dir() else path.parent
    name = path.stem if path.is_file() and path.name != CONFIG else place.name or folder.resolve().name
    return ModelSource(name, "config", path, _shape(read_config(path), path), "trained")


def _shape(config: dict[str, Any], path: Path) -> Architecture:
    try:
        return from_hf_config(config)
    except ValueError as error:
        foreign = (
            "the model needs Python code of its own (auto_map), which is never run; " if "auto_map" in config else ""
        )
        raise UserError(f"{config_path(path)}: {foreign}{error}") from error


def _gguf_source(path: Path, name: str | None) -> ModelSource:
    header = gguf_header(path)
    tied = not any(tensor.name == "output.weight" for tensor in header.tensors)
    try:
        architecture = from_gguf_metadata(header.metadata, tied_embeddings=tied)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    check_tensors(header.path, architecture)
    synthetic = synthesis.GGUF_SYNTHETIC_KEY in header.metadata
    weights_origin: Literal["synthetic", "trained"] = "synthetic" if synthetic else "trained"
    return ModelSource(name or one_line(model_name(path)), "gguf", header.path, architecture, weights_origin)


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
    _check_disk(source, kind, weight_format)
    if kind == "hf":
        path = _hf_directory(source, progress)
        n_bytes = sum(entry.n_bytes for entry in tensor_table(path).values())
    else:
        path = _gguf_file(source, weight_format or _NATIVE_FORMAT, progress)
        n_bytes = sum(tensor.n_bytes for tensor in gguf_header(path).tensors)
    return Artifact(path, weights_id(source), n_bytes)


def disk_needed(source: ModelSource, kind: Kind, weight_format: str | None) -> int:
    """Bytes of tensors that writing this one artifact takes; 0 where it exists.

    A GGUF of a preset is exported from its Hugging Face directory, which is an artifact of its own.
    """
    if kind == "hf":
        path, weight_format = _hf_path(source), _NATIVE_FORMAT
    else:
        weight_format = weight_format or _NATIVE_FORMAT
        path = _gguf_path(source, weight_format)
    return 0 if path.exists() else weight_bytes(source, weight_format)


def weight_bytes(source: ModelSource, weight_format: str | None) -> int:
    """Bytes of all weights in this format; None: as they are.

    Raises:
        UserError: as `weights_of`.
    """
    return weights_of(source, weight_format).n_bytes


def native_format(source: ModelSource) -> str:
    """The plain format that most of a model's bytes have, in which an export rounds nothing."""
    sizes = Counter({_NATIVE_FORMAT: 0})
    if source.path is not None:
        for entry in hf_tensors(source.path).values():
            sizes[entry.dtype.lower()] += entry.n_bytes
    most, _ = sizes.most_common(1)[0]
    return most if most in PLAIN else _NATIVE_FORMAT


def n_params(source: ModelSource) -> int:
    """Weights of the model: counted from its shape for a preset, from its files' tensors otherwise."""
    return weights_of(source, None).n_params


def models_table() -> pd.DataFrame:
    """The presets: `name, params, weights_bytes, kv_bytes_per_token, cached_bytes, can_run`, at two bytes an element.

    Those that cannot run are shapes only, for predictions.
    """
    import pandas as pd  # noqa: PLC0415  # slow to import, and `resolve` is on the way to every error message

    cached = cache.list_cached()
    rows = []
    for source in map(resolve_shape, PRESETS):
        prefix = file_stem(source)
        cached_bytes = sum(artifact.n_bytes for artifact in cached if artifact.path.name.startswith(prefix))
        kv_bytes = kv_bytes_per_token(source.architecture, 2)
        params, weights = n_params(source), weight_bytes(source, _NATIVE_FORMAT)
        rows.append((source.name, params, weights, kv_bytes, cached_bytes, _can_run(source)))
    columns = ["name", "params", "weights_bytes", "kv_bytes_per_token", "cached_bytes", "can_run"]
    return pd.DataFrame(rows, columns=columns)


def _hf_directory(source: ModelSource, progress: Progress | None) -> Path:
    path = _hf_path(source)
    if source.path is None and not path.exists():
        with cache.locked(path):
            if not path.exists():  # another run may have written it while this one waited
                report = _labelled(progress, f"writing {source.name}")
                synthesis.synthesise(PRESETS[source.name], path, seed=SEED, progress=report)
    return path


def _gguf_file(source: ModelSource, weight_format: str, progress: Progress | None) -> Path:
    path = _gguf_path(source, weight_format)
    if not path.exists():
        from harness.models.gguf_export import export  # noqa: PLC0415  # needs an extra

        hf_directory = _hf_directory(source, progress)
        with cache.locked(path):
            if not path.exists():
                report = _labelled(progress, f"exporting {source.name} to GGUF, {weight_format}")
                with cache.written_whole(path) as partial:
                    export(hf_directory, partial, weight_format, report)
    return path


def _labelled(progress: Progress | None, label: str) -> Callable[[int, int], None] | None:
    return None if progress is None else functools.partial(progress, label)


def _hf_path(source: ModelSource) -> Path:
    return source.path or cache.artifact_path(file_stem(source))


def _gguf_path(source: ModelSource, weight_format: str) -> Path:
    if source.origin == "gguf" and source.path is not None:
        return source.path
    return cache.artifact_path(f"{file_stem(source)}-{weight_format}.gguf")


def file_stem(source: ModelSource) -> str:
    """The beginning of the names of a model's files in the cache."""
    return f"{as_file_name(source.name)}-{weights_id(source)[:12]}"


def check_room(needed: int) -> None:
    """The cache's disk must hold that many more bytes.

    Raises:
        UserError: it cannot.
    """
    directory = cache.directory()
    existing = next((parent for parent in (directory, *directory.parents) if parent.exists()), Path())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise UserError(
            f"the model files need {needed / 1e9:.1f} GB of disk, {directory} has {free / 1e9:.1f} GB free; "
            "`tokenroof models --clean` frees older models, TOKENROOF_CACHE names another disk"
        )


def _check_disk(source: ModelSource, kind: Kind, weight_format: str | None) -> None:
    needed = disk_needed(source, kind, weight_format)
    if needed and kind == "gguf":
        needed += disk_needed(source, "hf", None)
    if not needed:
        return
    check_room(needed)
