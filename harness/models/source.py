"""From a word on the command line to a model whose shape and tensors are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from harness.errors import UserError
from harness.models import named, synthesis
from harness.models.artifact_weights import check_tensors, gguf_header, hf_tensors
from harness.models.gguf_parts import model_name, only_model_in
from harness.models.hf_config import CONFIG, config_path, read_config
from harness.models.named import Place
from harness.models.pickles import pickled_weights, refuse_pickles
from harness.models.presets import PRESETS
from harness.models.quantised import method_of
from harness.models.safetensors_file import has_weights
from harness.models.tensors import SYNTHESISABLE
from harness.models.unpickled import unpickled
from harness.roofline.gguf_metadata import from_gguf_metadata
from harness.roofline.hf_config import from_hf_config
from results.safe_text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from harness.models.progress import Progress
    from harness.roofline.architecture import Architecture


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
    unpickled: bool = False  # the directory is our copy of one whose weights are pickled


def resolve(
    spec: str, *, download: bool = False, allow_pickle: bool = False, progress: Progress | None = None
) -> ModelSource:
    """Understand what a user calls a model, for a run; only headers are read.

    Args:
        spec: as `resolve_shape`.
        download: fetch a Hugging Face repository that is not in its cache.
        allow_pickle: where the weights are pickled alone, write them once as safetensors, and take these.
        progress: told of that.

    Raises:
        UserError: there is no such model, its files are damaged or of another kind, or it has no weights and none can
            be synthesised.
    """
    source = resolve_shape(spec, download=download, allow_pickle=allow_pickle)
    if source.origin == "config" and source.path is not None:
        if allow_pickle and (weights := pickled_weights(source.path)):
            copy = unpickled(source.path, weights, source.name, progress)
            return replace(_hf_source(Place(copy, source.name)), unpickled=True)
        refuse_pickles(source.path, allowed=allow_pickle)
        raise UserError(
            f"{source.path}: no .safetensors file beside config.json, and other weight formats are not read; "
            "a prediction needs none, a run does"
        )
    if source.path is None and not can_run(source):
        family = source.architecture.model_type
        raise UserError(
            f"{source.name}: no weights can be synthesised for the family {family!r}, so this preset is for "
            "`tokenroof predict`; to run the model, give its Hugging Face directory or .gguf file"
        )
    return source


def can_run(preset: ModelSource) -> bool:
    """Whether weights can be synthesised for it."""
    return preset.architecture.model_type in SYNTHESISABLE


def resolve_shape(spec: str, *, download: bool = False, allow_pickle: bool = False) -> ModelSource:
    """The same for what needs no weights: a `config.json`, or a directory with nothing else, will do as well.

    Args:
        spec: a preset's name; a Hugging Face directory, a .gguf file or a directory that has one; `ollama:NAME`,
            `lmstudio:PUBLISHER/NAME`, or a Hugging Face repository that is in its cache.
        download: as for `resolve`.
        allow_pickle: download also what has pickled weights alone.

    Raises:
        UserError: there is no such model, or its files are damaged or of another kind.
    """
    if not spec.strip():
        raise UserError("-m needs a model: a preset, a Hugging Face directory or a .gguf file")
    if spec in PRESETS:
        return ModelSource(spec, "preset", None, from_hf_config(PRESETS[spec]), "synthetic")
    place = named.find(spec, download=download, allow_pickle=allow_pickle)
    if place.path.is_file():
        refuse_pickles(place.path, allowed=allow_pickle)
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
