"""The kinds of cache that the installed transformers has, beside the backend's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.workload import Case

if TYPE_CHECKING:
    from harness.experiments.kv_cache.asked import Asked
    from harness.options import Options


def runs(asked: Asked) -> list[Options]:
    """TTFT of the prompt and decode after it, with each kind.

    Raises:
        CannotAnswerError: none of the engines has several kinds.
    """
    several = {backend: info.cache_kinds for backend, info in asked.engines.items() if info.cache_kinds}
    asked.answered_by(several, "kinds", "it has one kind of cache; torch has several")
    deepest = asked.depths[-1]
    n_prompt = min(asked.n_prompt, deepest // 2)
    cases = tuple(Case(depth, n_prompt, asked.n_steps) for depth in (0, deepest - n_prompt))
    return [
        asked.run(backends=(backend,), cases=cases, cache_kind=("auto", *kinds)) for backend, kinds in several.items()
    ]
