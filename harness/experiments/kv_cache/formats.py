"""Fewer bytes an element of the cache: is decode at depth any faster, and are the answers still the same?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.workload import Case

if TYPE_CHECKING:
    from harness.experiments.kv_cache.asked import Asked
    from harness.options import Options


def runs(asked: Asked) -> list[Options]:
    """Decode alone at several depths, for each format that an engine has, its usual one first."""
    cases = tuple(Case(depth, 0, asked.n_steps) for depth in asked.depths)
    return [
        asked.with_kv_format(backend, kv_format, cases=cases)
        for backend in asked.engines
        for kv_format in asked.kv_formats(backend)
    ]
