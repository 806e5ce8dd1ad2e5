"""Why an engine cannot do what is asked, as far as can be told without loading a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from backends.registry import BACKENDS
from harness.errors import UserError
from harness.models.gguf_export import check_exportable

if TYPE_CHECKING:
    from harness.options import Options
    from harness.work import Work

_LLAMA_CPP_SEQUENCES = 256  # its LLAMA_MAX_SEQ
_UNQUANTISED = {"auto", "f32", "f16", "bf16"}


def unsupported(work: Work, options: Options) -> str | None:
    """The first reason against a work; None if there is none."""
    checks = (_model, _device, _gguf_engine if BACKENDS[work.backend].artifact == "gguf" else _whole_model_engine)
    return next((reason for check in checks if (reason := check(work, options))), None)


def _model(work: Work, options: Options) -> str | None:
    known, model_type = work.engine.model_types, work.source.architecture.model_type
    if work.source.origin == "gguf":
        if work.artifact_kind != "gguf":
            return "only llama.cpp reads .gguf files; give it a Hugging Face directory"
        if options.weights is not None:
            return "-w cannot convert a .gguf file; leave it out to run the file as it is"
    elif known is not None and model_type not in known:
        return f"the installed version has no code for model_type {model_type!r}"
    return None


def _device(work: Work, _: Options) -> str | None:
    settings, cores = work.settings, psutil.cpu_count() or 1
    if settings.n_gpu_layers > 0 and settings.device == "cpu":
        return f"-ngl {settings.n_gpu_layers} puts layers on a GPU, and --device cpu forbids it"
    if settings.n_threads > cores:
        return f"-t {settings.n_threads} is more than this machine's {cores} logical cores"
    return None


def _whole_model_engine(work: Work, _: Options) -> str | None:
    """Torch and MLX: one device, one attention kernel, a KV cache like the weights."""
    settings = work.settings
    if settings.n_gpu_layers != -1:
        return "only llama.cpp places part of the layers (-ngl); use --device cpu or gpu for the whole model"
    if settings.flash_attn != "auto":
        return "it chooses its attention kernel itself; -fa is for llama.cpp"
    if {settings.kv_k_format, settings.kv_v_format} - {"auto", settings.weights}:
        return "its KV cache has the weights' format; -ctk and -ctv are for llama.cpp"
    return None


def _gguf_engine(work: Work, options: Options) -> str | None:
    """llama.cpp: what it would refuse, and what its file format cannot carry."""
    settings, batch = work.settings, max(options.batch)
    if batch > (most := min(settings.n_batch, _LLAMA_CPP_SEQUENCES)):
        return f"-B {batch} is more sequences than it takes at once here, {most} (see -b)"
    if settings.flash_attn == "off" and settings.kv_v_format not in _UNQUANTISED:
        return f"a {settings.kv_v_format} V cache (-ctv) needs flash attention, and -fa off forbids it"
    if work.source.origin == "hf" and work.source.path is not None and settings.weights is not None:
        try:
            check_exportable(work.source.path, settings.weights)
        except UserError as error:
            return str(error)
    return None
