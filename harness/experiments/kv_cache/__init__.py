"""The KV-cache laboratory: what the cache saves and what it costs, one file an experiment."""

from __future__ import annotations

from harness.experiments.kv_cache import batch, formats, heads, kinds, memory, on_off, reuse, window

EXPERIMENTS = {
    "on-off": on_off.runs,
    "memory": memory.runs,
    "formats": formats.runs,
    "heads": heads.runs,
    "window": window.runs,
    "reuse": reuse.runs,
    "kinds": kinds.runs,
    "batch": batch.runs,
}
"""By name: from what is asked to the runs that answer it."""
