"""How the sentences name an engine, and write a ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.figures.texts import joined
from reports.numbers import number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import pandas as pd

    from reports.words import Words

MS, MB = 1e3, 1e-6
_MOST = 80


def who(line: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """An engine and its model: `torch, gpt2-mini, bf16`."""
    return joined([line["backend"], line["model"], line["weight_format"]], _MOST)


def theory(more: float, less: float, words: Words) -> str:
    """How many times more the ceilings make of it; nothing where one of them is not known."""
    return words["kv_cache.theory"].format(ratio=number(more / less)) if more > 0 and less > 0 else ""
