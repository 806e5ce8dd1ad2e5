"""Columns on what was run: engine, model, workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.schema.kinds import group, integer, json_list, json_object, number, text
from results.schema.provenance import ALWAYS, MEASURED

if TYPE_CHECKING:
    from results.schema.column import Column

_SHA256 = "[0-9a-f]{64}"

ENGINE_COLUMNS: list[Column] = group(
    "engine",
    text("backend", "torch, mlx, llama.cpp; openai: a server, seen from its client", ALWAYS),
    text("backend_version", "version of the library that did the work; of a server its name and version"),
    text("engine_build", "what else identifies the build"),
    text("engine_mode", "how the decode loop ran: eager, compiled, cuda-graph, async-eval, …"),
    text("device", "the engine's own name for the device"),
    integer("n_threads", "host threads that the engine computes with; engine_settings holds what was asked for"),
    integer("n_gpu_layers", "layers asked to be on the GPU; -1: all", least=-1),
    integer("gpu_layers_effective", "layers that are there, by their buffers; the output layer counted as one"),
    json_list(
        "tiers",
        "each memory that holds a part, in the order of a step: memory, name, layers (output not counted), output, "
        "weight_bytes, kv_bytes; read_bytes of a decode step; bandwidth_measured_gbs and bandwidth_spec_gbs",
        since=3,
    ),
    text("flash_attn", "attention kernel in effect"),
    json_object("engine_settings", "everything else that can move a number, asked for and in effect"),
)

MODEL_COLUMNS: list[Column] = group(
    "model",
    text("model", "preset, directory or file name", ALWAYS),
    text("architecture", "the configuration's model_type: llama, qwen3, gpt2, …"),
    integer("n_params", "parameters in the loaded tensors, a tied one once"),
    text("weights_origin", "synthetic or trained"),
    text("weights_id", "hash that names the weights: equal for bit-identical artifacts"),
    text("weight_format", "f32, f16, bf16, …"),
    integer("weight_bytes", "bytes of the loaded tensors, a tied one once"),
    number("weight_bits", "8 · weight_bytes / n_params: true bits of a weight, scales included", unit="bit", since=3),
    text("kv_k_format", "element format of the cached keys"),
    text("kv_v_format", "element format of the cached values"),
    integer("kv_allocated_tokens", "tokens a sequence's KV cache had room for", unit="tokens"),
)

WORKLOAD_COLUMNS: list[Column] = group(
    "workload",
    integer("n_depth", "tokens already in the KV cache, untimed", ALWAYS, unit="tokens"),
    integer("n_prompt", "prompt tokens; 0: decode only", ALWAYS, unit="tokens"),
    integer("n_gen", "generated tokens; 0: prefill only", ALWAYS, unit="tokens"),
    integer("decode_start", "context length at the first timed decode step", unit="tokens"),
    integer("batch", "sequences at once", ALWAYS, least=1),
    text(
        "kv_cache",
        "on; off: each step runs its whole prefix again; prefix: the first n_depth tokens were kept of a cache "
        "that held another text, and the time includes cutting it back",
        pattern="on|off|prefix",
        required=ALWAYS,
        since=3,
    ),
    text("prompt_file", "name of the text whose tokens were the prompt; empty: random token ids", since=4),
    integer("kv_kept_tokens", "with prefix: tokens that the engine kept; it filled the others again", since=3),
    integer("repetition", "within its launch, from 1", (MEASURED,), least=1),
    integer("seed", "of the token stream", (MEASURED,)),
    text("tokens_sha256", "of the token ids given to the engine", pattern=_SHA256),
    text("argmax_sha256", "of the token ids the engine answered, in time", pattern=_SHA256),
)
