"""The same text with the cache and without: what does a step cost, and what do all of them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.workload import Case

if TYPE_CHECKING:
    from harness.experiments.kv_cache.asked import Asked
    from harness.options import Options

_HALVINGS = 5


def runs(asked: Asked) -> list[Options]:
    """Texts that double in length, up to the one that was asked for."""
    lengths = sorted({max(2, asked.n_gen // 2**halving) for halving in range(_HALVINGS + 1)})
    cases = (Case(0, asked.n_prompt, n_gen, kv_cache=kv_cache) for kv_cache in ("on", "off") for n_gen in lengths)
    return [asked.run(cases=tuple(cases))]
