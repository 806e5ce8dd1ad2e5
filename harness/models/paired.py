"""One model in several files, each for the engine that reads it (--artifact)."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING

from backends.registry import BACKENDS
from harness.errors import UserError
from harness.models.named import UnknownModelError
from harness.models.presets import PRESETS
from harness.models.source import ModelSource, resolve, resolve_shape
from harness.roofline.architecture import Attention
from results.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.models.progress import Progress
    from harness.options import Options
    from harness.roofline.architecture import Architecture

_SERVER = "openai"  # whose artifact is no file, but the name under which a server has the model
_USAGE = "write ENGINE=PATH, as in torch=DIRECTORY or llama.cpp=FILE.gguf"


def parse(words: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Engine and path of each --artifact.

    Raises:
        UserError: it is no such pair, or of an unknown engine, or an engine's second.
    """
    artifacts: dict[str, str] = {}
    for word in words:
        engine, sign, path = word.partition("=")
        if not (sign and path.strip()):
            raise UserError(f"--artifact {word}: {_USAGE}")
        if engine not in (known := (*BACKENDS, _SERVER)):
            near = difflib.get_close_matches(engine, known, 1, 0.5)
            hint = f", did you mean {near[0]}?" if near else ""
            raise UserError(f"--artifact {word}: no such engine{hint} (there are {', '.join(known)})")
        if engine in artifacts:
            raise UserError(f"--artifact {word}: {engine} has {artifacts[engine]} already; one file for each engine")
        artifacts[engine] = path
    return tuple(artifacts.items())


def sources(options: Options, progress: Progress | None = None) -> list[ModelSource]:
    """The models of a request: each for all engines, or one in each engine's own file.

    Args:
        options: the request.
        progress: as for `resolve`.

    Raises:
        UserError: as `resolve`; --artifact without exactly one model, or with files of different models.
    """
    if not options.artifacts:
        return [
            resolve(spec, download=options.download, allow_pickle=options.allow_pickle, progress=progress)
            for spec in options.models
        ]
    if len(options.models) != 1 or not one_line(options.models[0]).strip():
        raise UserError("--artifact needs exactly one -m: what the rows call the model of which these are the files")
    name = one_line(options.models[0]).strip()
    named = [(engine, path) for engine, path in options.artifacts if engine != _SERVER]
    found = [_source(name, engine, path, progress, allow_pickle=options.allow_pickle) for engine, path in named]
    _check_alike(name, found)
    # llama.cpp's files call some families by another's name; rows of one model name one.
    families = [each.architecture.model_type for each in found if each.origin != "gguf"]
    return [
        replace(each, architecture=replace(each.architecture, model_type=families[0])) if families else each
        for each in found
    ]


def engines(options: Options) -> tuple[str, ...] | None:
    """The engines that are named: by --backend, else by the files that were given; None: the machine's own.

    Raises:
        UserError: one that is named has no file.
    """
    if not options.artifacts:
        return options.backends
    having = tuple(engine for engine, _ in options.artifacts if engine != _SERVER)
    for engine in options.backends or ():
        if engine not in having:
            raise UserError(f"--backend {engine}: no --artifact {engine}=PATH says which file it is to read")
    if not having:
        raise UserError(f"--artifact {_SERVER}=NAME is for --backend {_SERVER}")
    return options.backends or having


def _source(name: str, engine: str, path: str, progress: Progress | None, *, allow_pickle: bool) -> ModelSource:
    if path in PRESETS:
        raise UserError(f"--artifact {engine}={path}: a preset is no file; leave --artifact out and give -m {path}")
    try:
        return replace(resolve(path, allow_pickle=allow_pickle, progress=progress), name=name, engine=engine)
    except UnknownModelError as error:
        raise UserError(f"--artifact {engine}={path}: no such file or directory") from error
    except UserError as error:
        raise UserError(f"--artifact {engine}={path}: {error}") from error


def _check_alike(name: str, found: list[ModelSource]) -> None:
    """Files of one model have one shape; a name that is a preset's has that preset's."""
    shapes = {f"the file for {each.engine}": _shape(each.architecture) for each in found}
    if name in PRESETS:
        shapes = {f"the preset {name}": _shape(resolve_shape(name).architecture)} | shapes
    (first, expected), *others = shapes.items()
    for which, shape in others:
        for what, number in shape.items():
            if number != expected[what]:
                raise UserError(
                    f"--artifact: {which} is of another model: its {what} {_is(what)} {number}, "
                    f"in {first} {expected[what]}"
                )


def _is(what: str) -> str:
    return "are" if what.endswith("s") else "is"


def _shape(architecture: Architecture) -> dict[str, str]:
    """The numbers by which two models of one name would differ, in words."""
    mixers = [layer.mixer for layer in architecture.layers if isinstance(layer.mixer, Attention)]
    networks = [layer.feed_forward for layer in architecture.layers]
    return {
        "layers": str(architecture.n_layers),
        "width": str(architecture.d_model),
        "vocabulary": str(architecture.vocab_size),
        "heads": _several(f"{mixer.n_heads} of {mixer.head_dim}" for mixer in mixers),
        "key-value heads": _several(str(mixer.n_kv_heads) for mixer in mixers),
        "feed-forward width": _several(str(network.d_ff) for network in networks),
        "experts": _several(f"{each.n_experts_used} of {each.n_experts} of {each.d_expert}" for each in networks),
    }


def _several(each: Iterable[str]) -> str:
    """Of all layers, where they differ: "32 and 8"."""
    return " and ".join(dict.fromkeys(each))
