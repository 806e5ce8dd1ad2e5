"""What the cache takes in memory, beside what its shape says: several lengths, batches and formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.workload import Case

if TYPE_CHECKING:
    from harness.experiments.kv_cache.asked import Asked
    from harness.options import Options

_BATCHES = (1, 2)


def runs(asked: Asked) -> list[Options]:
    """One step at each depth, so that the cache is filled and little time is spent."""
    cases = tuple(Case(depth, 0, 1, batch) for batch in _BATCHES for depth in asked.depths)
    return [
        asked.with_kv_format(backend, kv_format, cases=cases)
        for backend in asked.engines
        for kv_format in asked.kv_formats(backend)
    ]
