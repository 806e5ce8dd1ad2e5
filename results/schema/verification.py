"""Columns on whether the answers are right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from results.schema.kinds import group, json_list, number, text
from results.schema.provenance import ALWAYS

if TYPE_CHECKING:
    from results.schema.column import Column

PROBE_PLACES = 16
"""Logits in each of the near and the far part of a probe."""

ROW_ID = re.compile(r"[0-9a-f]{12}")

VERIFICATION_COLUMNS: list[Column] = group(
    "verification",
    number("probe_nll", "mean negative log-likelihood of the probe's first 64 tokens", unit="nats", most=1e4),
    json_list(
        "probe_logits",
        "logits at fixed places: 16 within the first 64 tokens, 16 past 2048",
        lengths=(PROBE_PLACES, 2 * PROBE_PLACES),
    ),
    number(
        "quality_kl",
        "mean KL divergence of the probe's answers from those with unquantised weights; trained weights only",
        unit="nats",
        since=4,
    ),
    number(
        "quality_top1",
        "share of the probe's answers that are equal to those with unquantised weights; trained weights only",
        most=1,
        since=4,
    ),
    number(
        "kv_quality_kl",
        "mean KL divergence of the probe's answers from those with an unquantised KV cache; trained weights only",
        unit="nats",
        since=3,
    ),
    number(
        "kv_quality_top1",
        "share of the probe's answers that are equal to those with an unquantised KV cache; trained weights only",
        most=1,
        since=3,
    ),
    text(
        "verified",
        "yes: the probe agrees with another engine's; no: it met others and agrees with none; "
        "filled where files are merged, computed elsewhere",
        pattern="yes|no",
        since=2,
    ),
    text("verified_with", "the engines that it agrees with, at most three by name", since=2),
    text("verified_why", "why it is not yes, and where the engine disagrees with itself", since=2),
    text(
        "row_id",
        "12 hex digits, the row in the samples file; last, so that a torn line shows",
        ALWAYS,
        pattern=ROW_ID.pattern,
    ),
)
