"""A case as the command line would name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def case_name(case: Mapping[str, Any]) -> str:
    """`p512 n128 d0`, with `B4` where there are several sequences, and what is not usual of the KV cache.

    Args:
        case: a row or line with `n_prompt`, `n_gen`, `n_depth`, `batch` and `kv_cache`.
    """
    sequences = f" B{case['batch']}" if case["batch"] > 1 else ""
    return f"p{case['n_prompt']} n{case['n_gen']} d{case['n_depth']}{sequences}{_CACHE.get(case['kv_cache'], '')}"


_CACHE = {"off": " no cache", "prefix": " reused"}
