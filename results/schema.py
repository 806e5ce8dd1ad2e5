"""The columns of a result row, declared once for writing, reading, validation and documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

SCHEMA_VERSION = 1
ROW_ID = re.compile(r"[0-9a-f]{12}")

Kind = Literal["text", "int", "float", "json"]
_ARROW = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "json": pa.string()}


@dataclass(frozen=True)
class Column:
    """One column: its name holds the unit where there is one; `required` cells are never empty."""

    name: str
    group: str
    kind: Kind
    meaning: str
    required: bool = False


def _group(group: str, *columns: tuple[str, Kind, str] | tuple[str, Kind, str, bool]) -> list[Column]:
    return [Column(name, group, kind, meaning, *rest) for name, kind, meaning, *rest in columns]


COLUMNS: tuple[Column, ...] = (
    *_group(
        "run",
        ("schema_version", "int", "version of this list of columns", True),
        ("run_id", "text", "one call of `tokenroof run`; a resumed run keeps it", True),
        ("launch", "int", "which start of a worker process, from 1: rates vary most between launches", True),
        ("started_at", "text", "when the repetition began, UTC, ISO 8601", True),
    ),
    *_group(
        "machine",
        ("machine", "text", "the machine's label, from --machine or its hardware", True),
        ("os", "text", "operating system, its version, and the processor's instruction set", True),
        ("cpu", "text", "the processor's product name", True),
        ("ram_bytes", "int", "physical memory", True),
        ("device_name", "text", "product name of the device that ran the model"),
        ("device_memory_bytes", "int", "its memory: VRAM, or physical memory for a CPU"),
    ),
    *_group(
        "engine",
        ("backend", "text", "torch, mlx, llama.cpp", True),
        ("backend_version", "text", "version of the library that did the work"),
        ("engine_build", "text", "what else identifies the build"),
        ("engine_mode", "text", "how the decode loop ran: eager, compiled, cuda-graph, async-eval, …"),
        ("device", "text", "the engine's own name for the device"),
        ("n_threads", "int", "host threads that the engine computes with; engine_settings holds what was asked for"),
        ("n_gpu_layers", "int", "layers asked to be on the GPU; -1: all"),
        ("gpu_layers_effective", "int", "layers that are there, the output layer counted as one"),
        ("flash_attn", "text", "attention kernel in effect"),
        ("engine_settings", "json", "everything else that can move a number, asked for and in effect"),
    ),
    *_group(
        "model",
        ("model", "text", "preset, directory or file name", True),
        ("architecture", "text", "the configuration's model_type: llama, qwen3, gpt2, …"),
        ("n_params", "int", "parameters in the loaded tensors, a tied one once"),
        ("weights_origin", "text", "synthetic or trained"),
        ("weights_id", "text", "hash that names the weights: equal for bit-identical artifacts"),
        ("weight_format", "text", "f32, f16, bf16, …"),
        ("weight_bytes", "int", "bytes of the loaded tensors, a tied one once"),
        ("kv_k_format", "text", "element format of the cached keys"),
        ("kv_v_format", "text", "element format of the cached values"),
        ("kv_allocated_tokens", "int", "tokens a sequence's KV cache had room for"),
    ),
    *_group(
        "workload",
        ("n_depth", "int", "tokens already in the KV cache, untimed", True),
        ("n_prompt", "int", "prompt tokens; 0: decode only", True),
        ("n_gen", "int", "generated tokens; 0: prefill only", True),
        ("decode_start", "int", "context length at the first timed decode step"),
        ("batch", "int", "sequences at once", True),
        ("repetition", "int", "within its launch, from 1", True),
        ("seed", "int", "of the token stream", True),
        ("tokens_sha256", "text", "of the token ids given to the engine"),
        ("argmax_sha256", "text", "of the token ids the engine answered, in time"),
    ),
    *_group(
        "outcome",
        ("status", "text", "ok or failed", True),
        ("error", "text", "why it failed, for people"),
        ("unavailable", "json", "column -> why its cell is empty"),
    ),
    *_group(
        "measured",
        ("load_s", "float", "model file to ready session"),
        ("ttft_s", "float", "prompt ids handed over to first output id readable on the host"),
        ("prefill_tok_s", "float", "batch · n_prompt / ttft_s"),
        ("decode_tok_s", "float", "batch · intervals / time from first to last output token"),
        ("tpot_s", "float", "mean interval between output tokens of a sequence"),
        ("itl_p50_s", "float", "median interval"),
        ("itl_p90_s", "float", "90th percentile of the intervals"),
        ("itl_p99_s", "float", "99th percentile of the intervals"),
        ("itl_max_s", "float", "longest interval"),
        ("peak_host_bytes", "int", "the worker's peak resident memory since the case began"),
        ("peak_device_bytes", "int", "the engine's peak memory on the accelerator since the case began"),
        (
            "driver_device_bytes",
            "int",
            "the process's GPU memory after the repetition as the driver counts it (NVML)",
        ),
        ("kv_cache_bytes", "int", "bytes of the allocated KV cache"),
    ),
    *_group(
        "verification",
        ("probe_nll", "float", "mean negative log-likelihood of the probe's first 64 tokens, nats"),
        ("probe_logits", "json", "logits at fixed places: 16 within the first 64 tokens, 16 past 2048"),
        ("row_id", "text", "12 hex digits, the row in the samples file; last, so that a torn line shows", True),
    ),
)

NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
ARROW_SCHEMA = pa.schema([pa.field(column.name, _ARROW[column.kind]) for column in COLUMNS])
