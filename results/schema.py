"""The columns of a result row, declared once for writing, reading, validation, import and documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

SCHEMA_VERSION = 4
PROBE_PLACES = 16  # logits in each of the near and the far part of a probe
ROW_ID = re.compile(r"[0-9a-f]{12}")

Kind = Literal["text", "int", "float", "json"]

MEASURED, IMPORTED, PUBLISHED = PROVENANCES = ("measured", "imported", "published")
ALWAYS = PROVENANCES
FOREIGN = (IMPORTED, PUBLISHED)

_DAY_S = 86_400.0
_RATE_TOK_S = 1e8
_NAME_UNITS = {"_tok_s": "tok/s", "_s": "s", "_gbs": "GB/s", "_bytes": "B", "_bytes_per_token": "B/token", "_j": "J"}


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: holds the unit where there is one.
        kind: text, int, float, or json (kept as text).
        shape: of json: dict or list.
        lengths: of a list that holds numbers, null for one that is not finite: how many they may be.
        meaning: for people, in one line.
        group: what it is about.
        unit: of its numbers; "" where there is none.
        required: the provenances of the rows in which the cell is never empty.
        least: smallest allowed number.
        most: largest allowed number.
        pattern: what the whole of a text must match, as a regular expression that RE2 and Python read alike.
        since: the schema version that brought it.
    """

    name: str
    kind: Kind
    meaning: str
    group: str = ""
    unit: str = ""
    required: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    pattern: str = ""
    since: int = 1
    shape: type[dict[str, object] | list[object]] | None = None
    lengths: tuple[int, ...] = ()

    @property
    def document(self) -> str:
        """What a json cell holds, in words."""
        if self.lengths:
            return f"list of {' or '.join(map(str, self.lengths))} numbers"
        return "object" if self.shape is dict else "list"


def _group(group: str, *columns: Column, since: int = 1) -> list[Column]:
    return [replace(column, group=group, since=max(since, column.since)) for column in columns]


def _text(name: str, meaning: str, required: tuple[str, ...] = (), *, pattern: str = "", since: int = 1) -> Column:
    return Column(name, "text", meaning, required=required, pattern=pattern, since=since)


def _object(name: str, meaning: str, *, since: int = 1) -> Column:
    return Column(name, "json", meaning, since=since, shape=dict)


def _list(name: str, meaning: str, *, lengths: tuple[int, ...] = (), since: int = 1) -> Column:
    return Column(name, "json", meaning, since=since, shape=list, lengths=lengths)


def _int(
    name: str, meaning: str, required: tuple[str, ...] = (), *, unit: str = "", least: int = 0, since: int = 1
) -> Column:
    return Column(name, "int", meaning, unit=unit or _unit(name), required=required, least=least, since=since)


def _float(
    name: str, meaning: str, *, unit: str = "", least: float | None = 0, most: float | None = None, since: int = 1
) -> Column:
    return Column(name, "float", meaning, unit=unit or _unit(name), least=least, most=most, since=since)


def _seconds(name: str, meaning: str) -> Column:
    return _float(name, meaning, most=_DAY_S)


def _rate(name: str, meaning: str) -> Column:
    return _float(name, meaning, most=_RATE_TOK_S)


def _unit(name: str) -> str:
    endings = [ending for ending in _NAME_UNITS if name.endswith(ending)]
    return _NAME_UNITS[max(endings, key=len)] if endings else ""


_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"
_SHA256 = "[0-9a-f]{64}"

COLUMNS: tuple[Column, ...] = (
    *_group(
        "run",
        _int("schema_version", "version of this list of columns", ALWAYS, least=1),
        _text("run_id", "one call of `tokenroof run`; a resumed run keeps it", (MEASURED,)),
        _int(
            "launch", "which start of a worker process, from 1: rates vary most between launches", (MEASURED,), least=1
        ),
        _text("suite", "name and version of the fixed list of cases that it belongs to: standard-1", since=4),
        _text("started_at", "when the repetition began, UTC, ISO 8601", (MEASURED,), pattern=_TIME),
        _text(
            "provenance",
            "measured (by tokenroof), imported (from another tool's output) or published",
            ALWAYS,
            pattern="|".join(PROVENANCES),
            since=2,
        ),
        _text("source", "where a row that is not measured comes from: the tool, or an address", FOREIGN, since=2),
        _object(
            "derived", "column -> how it follows from what the source says, where it does not say it itself", since=2
        ),
    ),
    *_group(
        "machine",
        _text("machine", "the machine's label, from --machine or its hardware", ALWAYS),
        _text("os", "operating system, its version, and the processor's instruction set; of a server elsewhere: empty"),
        _text("cpu", "the processor's product name; of a server elsewhere: empty"),
        _int("ram_bytes", "physical memory; of a server elsewhere: empty"),
        _text("device_name", "product name of the device that ran the model"),
        _int("device_memory_bytes", "its memory: VRAM, or physical memory for a CPU"),
    ),
    *_group(
        "engine",
        _text("backend", "torch, mlx, llama.cpp; openai: a server, seen from its client", ALWAYS),
        _text("backend_version", "version of the library that did the work; of a server its name and version"),
        _text("engine_build", "what else identifies the build"),
        _text("engine_mode", "how the decode loop ran: eager, compiled, cuda-graph, async-eval, …"),
        _text("device", "the engine's own name for the device"),
        _int("n_threads", "host threads that the engine computes with; engine_settings holds what was asked for"),
        _int("n_gpu_layers", "layers asked to be on the GPU; -1: all", least=-1),
        _int("gpu_layers_effective", "layers that are there, by their buffers; the output layer counted as one"),
        _list(
            "tiers",
            "each memory that holds a part, in the order of a step: memory, name, layers (output not counted), output, "
            "weight_bytes, kv_bytes; read_bytes of a decode step; bandwidth_measured_gbs and bandwidth_spec_gbs",
            since=3,
        ),
        _text("flash_attn", "attention kernel in effect"),
        _object("engine_settings", "everything else that can move a number, asked for and in effect"),
    ),
    *_group(
        "model",
        _text("model", "preset, directory or file name", ALWAYS),
        _text("architecture", "the configuration's model_type: llama, qwen3, gpt2, …"),
        _int("n_params", "parameters in the loaded tensors, a tied one once"),
        _text("weights_origin", "synthetic or trained"),
        _text("weights_id", "hash that names the weights: equal for bit-identical artifacts"),
        _text("weight_format", "f32, f16, bf16, …"),
        _int("weight_bytes", "bytes of the loaded tensors, a tied one once"),
        _float(
            "weight_bits", "8 · weight_bytes / n_params: true bits of a weight, scales included", unit="bit", since=3
        ),
        _text("kv_k_format", "element format of the cached keys"),
        _text("kv_v_format", "element format of the cached values"),
        _int("kv_allocated_tokens", "tokens a sequence's KV cache had room for", unit="tokens"),
    ),
    *_group(
        "workload",
        _int("n_depth", "tokens already in the KV cache, untimed", ALWAYS, unit="tokens"),
        _int("n_prompt", "prompt tokens; 0: decode only", ALWAYS, unit="tokens"),
        _int("n_gen", "generated tokens; 0: prefill only", ALWAYS, unit="tokens"),
        _int("decode_start", "context length at the first timed decode step", unit="tokens"),
        _int("batch", "sequences at once", ALWAYS, least=1),
        _text(
            "kv_cache",
            "on; off: each step runs its whole prefix again; prefix: the first n_depth tokens were kept of a cache "
            "that held another text, and the time includes cutting it back",
            pattern="on|off|prefix",
            required=ALWAYS,
            since=3,
        ),
        _text("prompt_file", "name of the text whose tokens were the prompt; empty: random token ids", since=4),
        _int("kv_kept_tokens", "with prefix: tokens that the engine kept; it filled the others again", since=3),
        _int("repetition", "within its launch, from 1", (MEASURED,), least=1),
        _int("seed", "of the token stream", (MEASURED,)),
        _text("tokens_sha256", "of the token ids given to the engine", pattern=_SHA256),
        _text("argmax_sha256", "of the token ids the engine answered, in time", pattern=_SHA256),
    ),
    *_group(
        "outcome",
        _text("status", "ok, failed, or skipped: of a suite, not tried", ALWAYS, pattern="ok|failed|skipped"),
        _text("error", "why it failed or was skipped, for people"),
        _object("unavailable", "column -> why its cell is empty"),
        _text("comparable", "no: a merge found that the row must not be set beside the others", pattern="no", since=2),
        _text("comparable_why", "why it must not", since=2),
    ),
    *_group(
        "measured",
        _seconds("load_s", "model file to ready session"),
        _seconds("ttft_s", "prompt ids handed over to first output id readable on the host"),
        _rate("prefill_tok_s", "batch · n_prompt / ttft_s"),
        _rate(
            "decode_tok_s",
            "batch · intervals / time from first to last output token; of a server's streams, while all of them decode",
        ),
        _seconds("tpot_s", "mean interval between output tokens of a sequence"),
        _seconds("itl_p50_s", "median interval"),
        _seconds("itl_p90_s", "90th percentile of the intervals"),
        _seconds("itl_p99_s", "99th percentile of the intervals"),
        _seconds("itl_max_s", "longest interval"),
        *_group(
            "measured",
            _seconds(
                "ttft_client_s",
                "of a server: request sent to the first chunk with a generated token, thoughts included; it holds "
                "tokenising, queueing and the network; median of the streams",
            ),
            _seconds("ttft_client_p90_s", "90th percentile of it, of several streams"),
            _seconds("ttft_client_p99_s", "99th percentile of it, of several streams"),
            _rate(
                "request_tok_s", "of a server: the median stream's own decode rate, from its first to its last token"
            ),
            _rate(
                "output_tok_s",
                "of a server: all output tokens of the repetition over the time from the first request to the last "
                "token, prefill and queueing included; no decode rate",
            ),
            _seconds("network_latency_s", "median time of a GET that asks a server for next to nothing"),
            _seconds(
                "server_latency_s",
                "median ttft_client_s of an idle server's shortest prompt and one token: it holds a pass of the model",
            ),
            _int(
                "reasoning_tokens", "of the output tokens of all streams, those of a server's thoughts", unit="tokens"
            ),
            _float(
                "request_rate",
                "requests a second that were sent on average, at times of a Poisson process; empty: all at once",
                unit="1/s",
                most=1e6,
            ),
            since=4,
        ),
        _int("peak_host_bytes", "the worker's peak resident memory since the case began"),
        _int("peak_device_bytes", "the engine's peak memory on the accelerator since the case began"),
        _int(
            "driver_device_bytes",
            "the process's GPU memory after the repetition as the driver counts it (NVML)",
        ),
        _int("kv_cache_bytes", "bytes of the allocated KV cache"),
        _float(
            "experts_hit",
            "distinct experts that a decode step reads in a layer, all sequences together: the mean over the layers "
            "that have experts and the first 64 timed steps, counted in a pass of its own",
            unit="experts",
            since=4,
        ),
    ),
    *_group(
        "ceiling",
        _int("streamed_bytes_per_token", "weight bytes that a decode step of one sequence must read"),
        _int(
            "kv_bytes_per_token", "bytes that a token adds to the KV cache of one sequence, before any window is full"
        ),
        _int("kv_read_bytes", "KV cache bytes that a timed decode step must read on average, all sequences"),
        _float(
            "bandwidth_spec_gbs",
            "the vendor's memory bandwidth of the device; of several that hold a part, all bytes over all time",
            most=1e6,
        ),
        _float(
            "bandwidth_measured_gbs",
            "the measured read bandwidth for as many bytes as a decode step reads; of several likewise",
            most=1e6,
        ),
        _text("bandwidth_source", "where both come from"),
        _rate(
            "decode_ceiling_tok_s",
            "the decode rate if a step's bytes moved at the measured bandwidth and nothing else took time",
        ),
        _text(
            "decode_ceiling_bound",
            "memory, or compute where a step's operations take longer than its bytes at the measured rates",
            pattern="memory|compute",
        ),
        _rate("decode_ceiling_spec_tok_s", "the same at the vendor's bandwidth"),
        _rate(
            "decode_ceiling_expected_tok_s",
            "an estimate: at the measured bandwidth, each sequence choosing its experts by chance",
        ),
        _float(
            "experts_hit_expected",
            "experts_hit if each sequence chose its experts by chance: n · (1 - (1 - top_k / n)^batch) of n experts",
            unit="experts",
            since=4,
        ),
        _float("mbu", "model bandwidth utilisation: decode_tok_s / decode_ceiling_tok_s"),
        _int("prefill_flops", "floating-point operations of the timed prefill", unit="FLOP"),
        _rate(
            "prefill_ceiling_tok_s",
            "the prefill rate at the measured rate of matrix products and the measured bandwidth",
        ),
        _float("mfu", "model FLOP/s utilisation: prefill_tok_s / prefill_ceiling_tok_s"),
        _text("ceiling_warning", "a rate above its ceiling: a fault in the accounting or in the bandwidth test"),
        since=2,
    ),
    *_group(
        "conditions",
        _float("temp_c_max", "the device's highest temperature during the repetition", unit="°C", least=-60, most=200),
        _text(
            "throttled",
            "no, or why the device was held back during the repetition: heat, power, …",
        ),
        _float(
            "cpu_busy_other_pct",
            "processor time that other processes took during the repetition, of all cores",
            unit="%",
            most=100,
        ),
        _float(
            "energy_j",
            "energy that the device took for the repetition, idle share included, where a counter exists",
            most=1e9,
        ),
        _object("conditions", "clocks, governor, power and heat as they were looked at, lowest and highest"),
        since=2,
    ),
    *_group(
        "verification",
        _float("probe_nll", "mean negative log-likelihood of the probe's first 64 tokens", unit="nats", most=1e4),
        _list(
            "probe_logits",
            "logits at fixed places: 16 within the first 64 tokens, 16 past 2048",
            lengths=(PROBE_PLACES, 2 * PROBE_PLACES),
        ),
        _float(
            "quality_kl",
            "mean KL divergence of the probe's answers from those with unquantised weights; trained weights only",
            unit="nats",
            since=4,
        ),
        _float(
            "quality_top1",
            "share of the probe's answers that are equal to those with unquantised weights; trained weights only",
            most=1,
            since=4,
        ),
        _float(
            "kv_quality_kl",
            "mean KL divergence of the probe's answers from those with an unquantised KV cache; trained weights only",
            unit="nats",
            since=3,
        ),
        _float(
            "kv_quality_top1",
            "share of the probe's answers that are equal to those with an unquantised KV cache; trained weights only",
            most=1,
            since=3,
        ),
        _text(
            "verified",
            "yes: the probe agrees with another engine's; no: it met others and agrees with none; "
            "filled where files are merged, computed elsewhere",
            pattern="yes|no",
            since=2,
        ),
        _text("verified_with", "the engines that it agrees with, at most three by name", since=2),
        _text("verified_why", "why it is not yes, and where the engine disagrees with itself", since=2),
        _text(
            "row_id",
            "12 hex digits, the row in the samples file; last, so that a torn line shows",
            ALWAYS,
            pattern=ROW_ID.pattern,
        ),
    ),
)

CASE = ["n_depth", "n_prompt", "n_gen", "batch", "kv_cache", "prompt_file"]
"""What a repetition was asked to do; rates are averaged and compared only where all of it is equal."""

NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
BY_NAME: dict[str, Column] = {column.name: column for column in COLUMNS}


def column_of(name: str, version: int = SCHEMA_VERSION) -> Column | None:
    """The column of this name in a version of the schema; None where it has none, so that a file's is its own."""
    column = BY_NAME.get(name)
    return column if column is not None and column.since <= version else None


def names_of(version: int) -> tuple[str, ...]:
    """The columns of an older version of the schema, in their order."""
    return tuple(column.name for column in COLUMNS if column.since <= version)
