"""A case as the command line would name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.page.texts import name

if TYPE_CHECKING:
    from collections.abc import Mapping


def case_name(case: Mapping[str, Any]) -> str:
    """`p512 n128 d0`, with `B4` where there are several sequences, what is not usual of the KV cache, and the text.

    Args:
        case: a row or line with the columns of `results.schema.CASE`.
    """
    sequences = f" B{case['batch']}" if case["batch"] > 1 else ""
    text = case["prompt_file"]
    source = f" of {name(text)}" if isinstance(text, str) else ""  # an empty cell is None, or pandas' NaN
    lengths = f"p{case['n_prompt']} n{case['n_gen']} d{case['n_depth']}"
    return f"{lengths}{sequences}{_CACHE.get(case['kv_cache'], '')}{source}"


_CACHE = {"off": " no cache", "prefix": " reused"}
