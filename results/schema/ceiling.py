"""Columns on what the memory and the processor would allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.schema.kinds import group, integer, number, rate, text

if TYPE_CHECKING:
    from results.schema.column import Column


CEILING_COLUMNS: list[Column] = group(
    "ceiling",
    integer("streamed_bytes_per_token", "weight bytes that a decode step of one sequence must read"),
    integer("kv_bytes_per_token", "bytes that a token adds to the KV cache of one sequence, before any window is full"),
    integer("kv_read_bytes", "KV cache bytes that a timed decode step must read on average, all sequences"),
    number(
        "bandwidth_spec_gbs",
        "the vendor's memory bandwidth of the device; of several that hold a part, all bytes over all time",
        most=1e6,
    ),
    number(
        "bandwidth_measured_gbs",
        "the measured read bandwidth for as many bytes as a decode step reads; of several likewise",
        most=1e6,
    ),
    text("bandwidth_source", "where both come from"),
    rate(
        "decode_ceiling_tok_s",
        "the decode rate if a step's bytes moved at the measured bandwidth and nothing else took time",
    ),
    text(
        "decode_ceiling_bound",
        "memory, or compute where a step's operations take longer than its bytes at the measured rates",
        pattern="memory|compute",
    ),
    rate("decode_ceiling_spec_tok_s", "the same at the vendor's bandwidth"),
    rate(
        "decode_ceiling_expected_tok_s",
        "an estimate: at the measured bandwidth, each sequence choosing its experts by chance",
    ),
    number(
        "experts_hit_expected",
        "experts_hit if each sequence chose its experts by chance: n · (1 - (1 - top_k / n)^batch) of n experts",
        unit="experts",
        since=4,
    ),
    number("mbu", "model bandwidth utilisation: decode_tok_s / decode_ceiling_tok_s"),
    integer("prefill_flops", "floating-point operations of the timed prefill", unit="FLOP"),
    rate(
        "prefill_ceiling_tok_s",
        "the prefill rate at the measured rate of matrix products and the measured bandwidth",
    ),
    number("mfu", "model FLOP/s utilisation: prefill_tok_s / prefill_ceiling_tok_s"),
    text("ceiling_warning", "a rate above its ceiling: a fault in the accounting or in the bandwidth test"),
    since=2,
)
