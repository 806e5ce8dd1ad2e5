"""Cases: how one is named, and which of several is the plainest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.page.texts import name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


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


def plainest_first(cases: pd.DataFrame) -> pd.DataFrame:
    """One sequence before several, the least depth, the longest generation and prompt; else in their order.

    Args:
        cases: rows or lines with the columns of `results.schema.CASE`.
    """
    order = ["batch", "n_depth", "n_gen", "n_prompt"]
    return cases.sort_values(order, ascending=[True, True, False, False], kind="stable")


_CACHE = {"off": " no cache", "prefix": " reused"}
