"""A test of llama-bench as rows, whichever of its formats it was printed in.

llama-bench times one thing a test: a prompt (pp), a generation (tg), or both together (pg), which is no rate of either.
Its tg is N forwards over N intervals from depth d: our decode rate of `-p 0 -n N -d d`.

Fields came and went. What names hardware, model and work is read under each of its names; everything else becomes part
of `engine_settings` under llama-bench's own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from results.importers.llama_bench_labels import split_label
from results.importers.llama_log import gpu_layers
from results.machine_label import machine_label
from results.schema import BY_NAME

if TYPE_CHECKING:
    from results.importers.rows import Imported
    from results.importers.source import Cells

TOOL = "llama-bench"
NEEDED = frozenset({"avg_ts", "n_prompt", "n_gen", "model_type"})
"""Fields that every version has, and no other tool."""

# One field a backend, before `backends` came.
_BACKEND_FIELDS = {
    "cuda": "CUDA", "vulkan": "Vulkan", "kompute": "Kompute", "metal": "Metal", "sycl": "SYCL", "opencl": "OpenCL",
    "rpc": "RPC", "gpu_blas": "", "blas": "",
}  # fmt: skip
_CPU_BACKENDS = frozenset({"CPU", "BLAS", "ZenDNN"})
_FLASH = {"0": "off", "1": "on", "-1": "auto", "false": "off", "true": "on"}
_NO_BUILD = frozenset({None, "0", "unknown"})
_TOLD = frozenset(
    {
        *_BACKEND_FIELDS, "build_commit", "build_number", "cpu_info", "gpu_info", "model_filename", "model_type",
        "model_size", "model_n_params", "n_threads", "type_k", "type_v", "f16_kv", "n_gpu_layers", "flash_attn",
        "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns",
        "samples_ts",
    }
)  # fmt: skip


def add_test(out: Imported, cells: Cells, derived: dict[str, str] | None = None) -> None:
    """The rows of one test: a row a repetition where the repetitions are told, else one of their mean.

    Args:
        out: gets them.
        cells: llama-bench's fields.
        derived: what the format told less directly.

    Raises:
        ResultsError: a field holds what it cannot mean.
    """
    n_prompt, n_gen, n_depth = cells.count("n_prompt"), cells.count("n_gen"), cells.count("n_depth")
    if n_prompt and n_gen:
        out.leave_out(cells.line, f"pp{n_prompt}+tg{n_gen} is a mixed rate, of neither prefill nor decode")
        return
    column = "prefill_tok_s" if n_prompt else "decode_tok_s"
    rates, how = _rates(cells, n_prompt + n_gen)
    if not (n_prompt or n_gen) or not rates:
        out.leave_out(cells.line, "a test without tokens or without a rate")
        return
    columns = _columns(cells)
    for repetition, rate in enumerate(rates, start=1):
        out.add(
            cells.line,
            **columns,
            **{column: rate},
            n_depth=n_depth,
            n_prompt=n_prompt,
            n_gen=n_gen,
            decode_start=n_depth if n_gen else None,
            repetition=repetition,
            derived={**(derived or {}), column: how},
        )


def _rates(cells: Cells, n_tokens: int) -> tuple[list[float], str]:
    """Tokens a second of each repetition, and how they follow."""
    if samples_ns := cells.rates("samples_ns"):
        return [1e9 * n_tokens / time_ns for time_ns in samples_ns], "tokens / samples_ns"
    if samples := cells.rates("samples_ts"):
        return samples, "samples_ts"
    mean, spread = cells.rate("avg_ts"), cells.text("stddev_ts")
    how = "mean of the repetitions" + (f", standard deviation {spread} tok/s" if spread else "")
    return ([] if mean is None else [mean]), how


def _columns(cells: Cells) -> dict[str, Any]:
    backends, cpu, gpu = _backends(cells), cells.text("cpu_info"), cells.text("gpu_info")
    on_cpu = set(backends.split(",")) <= _CPU_BACKENDS
    number, commit = cells.text("build_number"), cells.text("build_commit")
    model, weight_format = split_label(cells.text("model_type") or "")
    n_gpu_layers = gpu_layers(cells)
    time = cells.text("test_time") or ""
    return {
        "source": TOOL if number in _NO_BUILD else f"{TOOL} of llama.cpp b{number}",
        "started_at": time if re.fullmatch(BY_NAME["started_at"].pattern, time) else None,
        "machine": machine_label(gpu or cpu or "") or None,
        "cpu": cpu,
        "device_name": cpu if on_cpu or n_gpu_layers == 0 else gpu,
        "backend": "llama.cpp",
        "backend_version": None if number in _NO_BUILD else f"b{number}",
        "engine_build": None if commit in _NO_BUILD else f"commit {commit}",
        "device": "cpu" if on_cpu else None,
        "n_threads": cells.whole("n_threads"),
        "n_gpu_layers": n_gpu_layers,
        "gpu_layers_effective": 0 if on_cpu else None,
        "flash_attn": _FLASH.get((cells.text("flash_attn") or "").lower(), cells.text("flash_attn")),
        "engine_settings": {**cells.settings(_TOLD), "backends": backends},
        "model": _file_name(cells) or model or None,
        "architecture": model.partition(" ")[0] or None,
        "n_params": cells.whole("model_n_params"),
        "weight_format": weight_format,
        "weight_bytes": cells.whole("model_size"),
        "kv_k_format": cells.text("type_k") or _old_kv_format(cells),
        "kv_v_format": cells.text("type_v") or _old_kv_format(cells),
    }


def _backends(cells: Cells) -> str:
    """As llama-bench names them: CUDA, "ROCm,RPC", "Metal,BLAS", CPU."""
    if told := cells.text("backends"):
        return told
    on = [name for name in _BACKEND_FIELDS if (cells.text(name) or "0").lower() not in {"0", "false"}]
    return ",".join(filter(None, (_BACKEND_FIELDS[name] for name in on))) or ("BLAS" if "blas" in on else "CPU")


def _file_name(cells: Cells) -> str:
    """Without its folders, which may name a person."""
    path = cells.text("model_filename") or ""
    return re.split(r"[/\\]", path)[-1].removesuffix(".gguf")


def _old_kv_format(cells: Cells) -> str | None:
    told = cells.text("f16_kv")
    return told and ("f32" if told.lower() in {"0", "false"} else "f16")
