"""What the KV-cache experiments tell, in sentences; one file an experiment."""

from __future__ import annotations

from reports.kv_cache import batch, formats, heads, kinds, memory, on_off, reuse, window

SENTENCES = {
    "on-off": on_off.sentences,
    "memory": memory.sentences,
    "formats": formats.sentences,
    "heads": heads.sentences,
    "window": window.sentences,
    "reuse": reuse.sentences,
    "kinds": kinds.sentences,
    "batch": batch.sentences,
}
"""By the experiment's name: from its rows to what follows from them, three sentences an engine at most."""
