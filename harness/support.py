"""Why an engine cannot do what is asked, as far as can be told without loading a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from backends.registry import BACKENDS
from harness.errors import UserError
from harness.models.artifact_weights import is_plain, stored_bytes
from harness.models.gguf_export import check_exportable
from harness.models.quantised import obstacle
from harness.quality.questions import UNQUANTISED
from harness.quantise import names
from harness.roofline.nominal import PLAIN, misfits
from results.amounts import counted

if TYPE_CHECKING:
    from pathlib import Path

    from harness.options import Options
    from harness.work import Work

_LLAMA_CPP_SEQUENCES = 256  # its LLAMA_MAX_SEQ
# Flags that put a part of a model somewhere: the setting, and the value with which it asks for nothing.
_PLACING: dict[str, tuple[str, object]] = {
    "-ngl": ("n_gpu_layers", -1),
    "-ncmoe": ("n_cpu_moe", 0),
    "-nkvo": ("kv_offload", True),
    "-sm": ("split_mode", "layer"),
    "-ts": ("tensor_split", ()),
    "--rpc": ("rpc", ()),
}


def unsupported(work: Work, options: Options) -> str | None:
    """The first reason against a work; None if there is none."""
    of_engine = _gguf_engine if BACKENDS[work.backend].artifact == "gguf" else _whole_model_engine
    checks = (_model, _weights, _device, _cache, of_engine)
    return next((reason for check in checks if (reason := check(work, options))), None)


def format_obstacle(work: Work) -> str | None:
    """Why an engine has not the weight format of a work; None if it may have it."""
    if (weights := work.settings.weights) is None:
        return None
    return names.obstacle(weights, work.engine, work.backend, work.source.architecture)


def clamped(work: Work) -> str | None:
    """A note where more layers are asked for than there are; None where not."""
    asked, n_layers = work.settings.n_gpu_layers, work.source.architecture.n_layers + 1
    if asked <= n_layers or work.accelerator is None:
        return None
    return f"-ngl {asked} is more than the {n_layers} layers of {work.source.name}, so all of them go to the GPU"


def other_types(work: Work) -> str | None:
    """A note where a format's blocks do not divide a model's rows; None where they do."""
    if not work.is_quantised_here or work.roofline_format is None:
        return None
    found, all_bytes = misfits(work.source.architecture, work.roofline_format)
    if not found:
        return None
    shares = ", ".join(f"{name} ({n_bytes / all_bytes:.0%} of all bytes)" for name, n_bytes in found.most_common())
    return f"{work}: its blocks do not divide the rows of some matrices, which are {shares}"


def _model(work: Work, options: Options) -> str | None:
    known, model_type = work.engine.model_types, work.source.architecture.model_type
    if work.source.origin == "gguf" and work.source.path is not None:
        if work.artifact_kind != "gguf":
            return "only llama.cpp reads .gguf files; give it a Hugging Face directory"
        return _gguf_weights(work.source.path, work.settings.weights)
    if known is not None and model_type not in known:
        return f"the installed version has no code for model_type {model_type!r}"
    if work.source.quantised_by is not None:
        return _quantised(work, work.source.quantised_by, options)
    return None


def _quantised(work: Work, method: str, options: Options) -> str | None:
    if options.weights is not None:
        return f"-w cannot convert weights quantised by {method}; leave it out to run them as they are"
    return obstacle(method, work.backend)


def _gguf_weights(path: Path, weights: str | None) -> str | None:
    """llama.cpp's quantiser reads a .gguf file too; the work's weights are None where the file has them so already."""
    if weights is None:
        return None
    types = [name for name, _ in stored_bytes(path).most_common()]
    if not is_plain(path):
        found = ", ".join(name for name in types if name.lower() not in PLAIN)
        return f"the file is quantised already ({found}), and -w cannot convert it; leave -w out"
    if weights in PLAIN:
        return f"the file is {types[0].lower()}, and is run so or quantised (-w q4_k_m), but not made {weights}"
    return None


def _weights(work: Work, _: Options) -> str | None:
    return format_obstacle(work)


def _device(work: Work, _: Options) -> str | None:
    settings, cores = work.settings, psutil.cpu_count() or 1
    if settings.n_gpu_layers > 0 and settings.device == "cpu":
        return f"-ngl {settings.n_gpu_layers} puts layers on a GPU, and --device cpu forbids it"
    if settings.rpc and settings.device == "cpu":
        return "--rpc adds devices to put layers on, and --device cpu forbids it"
    if settings.n_threads > cores:
        return f"-t {settings.n_threads} is more than this machine's {counted(cores, 'logical core')}"
    return None


def _whole_model_engine(work: Work, _: Options) -> str | None:
    """Torch and MLX: one device, one attention kernel, keys and values alike."""
    settings = work.settings
    for flag, (name, neutral) in _PLACING.items():
        if getattr(settings, name) != neutral:
            return f"only llama.cpp places part of a model ({flag}); use --device cpu or gpu for the whole model"
    if settings.flash_attn != "auto":
        return "it chooses its attention kernel itself; -fa is for llama.cpp"
    if len(formats := {settings.kv_k_format, settings.kv_v_format} - {_plain_weights(work)}) > 1:
        return f"it keeps keys and values alike, not {' and '.join(sorted(formats))}; give -ctk and -ctv one format"
    return None


def _cache(work: Work, _: Options) -> str | None:
    settings, formats = work.settings, (*BACKENDS[work.backend].kv_formats, *work.engine.kv_formats)
    for flag, asked in (("-ctk", settings.kv_k_format), ("-ctv", settings.kv_v_format)):
        if asked not in {"auto", _plain_weights(work), *formats}:
            has = " and ".join(filter(None, [", ".join(formats), "the weights' own format"]))
            return f"it has no {asked} KV cache ({flag}); it has {has}"
    if settings.cache_kind not in {"auto", *(kinds := work.engine.cache_kinds)}:
        has = f"it has {', '.join(kinds)}" if kinds else "only torch has several"
        return f"it has no cache of the kind {settings.cache_kind!r} (--cache-kind); {has}"
    if settings.cache_kind in work.engine.cuda_cache_kinds and not (work.accelerator and "cuda" in work.accelerator.id):
        return f"its {settings.cache_kind} cache (--cache-kind) moves layers over CUDA streams, and runs on CUDA only"
    return None


def _plain_weights(work: Work) -> str | None:
    """The weights' format, where keys and values can have it too."""
    return None if work.is_quantised_here else work.settings.weights


def _gguf_engine(work: Work, options: Options) -> str | None:
    """llama.cpp: what it would refuse, and what its file format cannot carry."""
    settings = work.settings
    batch = max(options.batch if options.cases is None else (case.batch for case in options.cases))
    if batch > (most := min(settings.n_batch, _LLAMA_CPP_SEQUENCES)):
        return f"-B {batch} is more sequences than it takes at once here, {most} (see -b)"
    if settings.flash_attn == "off" and settings.kv_v_format not in UNQUANTISED:
        return f"a {settings.kv_v_format} V cache (-ctv) needs flash attention, and -fa off forbids it"
    if settings.n_cpu_moe and not work.source.architecture.is_mixture:
        return f"-ncmoe {settings.n_cpu_moe} keeps experts in the host's memory, and the model has none"
    if len(settings.tensor_split) > (most := len(work.engine.accelerators)):
        parts = "/".join(f"{part:g}" for part in settings.tensor_split)
        return f"-ts {parts} is for {counted(len(settings.tensor_split), 'device')}, and there are {most}"
    if work.source.origin == "hf" and work.source.path is not None and (exported := work.exported_format):
        try:
            check_exportable(work.source.path, exported)
        except UserError as error:
            return str(error)
    return None
