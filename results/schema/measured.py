"""Columns on what was measured, and under which conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.schema.kinds import group, integer, json_object, number, rate, seconds, text

if TYPE_CHECKING:
    from results.schema.column import Column


MEASURED_COLUMNS: list[Column] = group(
    "measured",
    seconds("load_s", "model file to ready session"),
    seconds("ttft_s", "prompt ids handed over to first output id readable on the host"),
    rate("prefill_tok_s", "batch · n_prompt / ttft_s"),
    rate(
        "decode_tok_s",
        "batch · intervals / time from first to last output token; of a server's streams, while all of them decode",
    ),
    seconds("tpot_s", "mean interval between output tokens of a sequence"),
    seconds("itl_p50_s", "median interval"),
    seconds("itl_p90_s", "90th percentile of the intervals"),
    seconds("itl_p99_s", "99th percentile of the intervals"),
    seconds("itl_max_s", "longest interval"),
    *group(
        "measured",
        seconds(
            "ttft_client_s",
            "of a server: request sent to the first chunk with a generated token, thoughts included; it holds "
            "tokenising, queueing and the network; median of the streams",
        ),
        seconds("ttft_client_p90_s", "90th percentile of it, of several streams"),
        seconds("ttft_client_p99_s", "99th percentile of it, of several streams"),
        rate("request_tok_s", "of a server: the median stream's own decode rate, from its first to its last token"),
        rate(
            "output_tok_s",
            "of a server: all output tokens of the repetition over the time from the first request to the last "
            "token, prefill and queueing included; no decode rate",
        ),
        seconds("network_latency_s", "median time of a GET that asks a server for next to nothing"),
        seconds(
            "server_latency_s",
            "median ttft_client_s of an idle server's shortest prompt and one token: it holds a pass of the model",
        ),
        integer("reasoning_tokens", "of the output tokens of all streams, those of a server's thoughts", unit="tokens"),
        number(
            "request_rate",
            "requests a second that were sent on average, at times of a Poisson process; empty: all at once",
            unit="1/s",
            most=1e6,
        ),
        since=4,
    ),
    integer("peak_host_bytes", "the worker's peak resident memory since the case began"),
    integer("peak_device_bytes", "the engine's peak memory on the accelerator since the case began"),
    integer(
        "driver_device_bytes",
        "the process's GPU memory after the repetition as the driver counts it (NVML)",
    ),
    integer("kv_cache_bytes", "bytes of the allocated KV cache"),
    number(
        "experts_hit",
        "distinct experts that a decode step reads in a layer, all sequences together: the mean over the layers "
        "that have experts and the first 64 timed steps, counted in a pass of its own",
        unit="experts",
        since=4,
    ),
)

CONDITIONS_COLUMNS: list[Column] = group(
    "conditions",
    number("temp_c_max", "the device's highest temperature during the repetition", unit="°C", least=-60, most=200),
    text(
        "throttled",
        "no, or why the device was held back during the repetition: heat, power, …",
    ),
    number(
        "cpu_busy_other_pct",
        "processor time that other processes took during the repetition, of all cores",
        unit="%",
        most=100,
    ),
    number(
        "energy_j",
        "energy that the device took for the repetition, idle share included, where a counter exists",
        most=1e9,
    ),
    json_object("conditions", "clocks, governor, power and heat as they were looked at, lowest and highest"),
    since=2,
)
