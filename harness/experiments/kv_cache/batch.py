"""Several sequences at once: they share the reading of the weights, and each brings a cache of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from harness.models.source import resolve
from harness.roofline.traffic import kv_bytes_per_token
from harness.workload import Case

if TYPE_CHECKING:
    from harness.experiments.kv_cache.asked import Asked
    from harness.options import Options

_MOST = 32
_ELEMENT_BYTES = 2
_SHARE_OF_FREE = 0.25  # of the free memory: prefills need room beside the cache


def runs(asked: Asked) -> list[Options]:
    """Batches that double, as long as their caches fit the memory."""
    token_bytes = max(kv_bytes_per_token(resolve(model).architecture, _ELEMENT_BYTES) for model in asked.options.models)
    most = _SHARE_OF_FREE * psutil.virtual_memory().available / (token_bytes * asked.text_tokens)
    batches = [batch for batch in (2**doubling for doubling in range(_MOST.bit_length())) if batch <= max(1, most)]
    depth = asked.depths[-1]
    return [asked.run(cases=tuple(Case(depth, 0, asked.n_steps, batch) for batch in batches))]
