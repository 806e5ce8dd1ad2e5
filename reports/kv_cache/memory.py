"""What the cache takes, beside what its shape says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.figures.data import WORK, lines, own
from reports.kv_cache.names import MB, who
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

CACHE = [*WORK, "kv_k_format", "kv_v_format"]
SIZE = ["n_depth", "n_prompt", "n_gen", "batch"]
_HELD, _ALLOCATED, _A_TOKEN = "kv_cache_bytes", "kv_allocated_tokens", "kv_bytes_per_token"


def caches(rows: pd.DataFrame) -> pd.DataFrame:
    """One line for each format and size: what the cache holds, and what its formula says.

    Returns:
        The columns of `CACHE` and `SIZE`; `held`, bytes of the cache; `tokens`, that were asked for, all sequences;
        `allocated`, that it has room for; `formula`, bytes of so many; `asked_bytes`, bytes of those asked for.
    """
    found = lines(own(rows), [*CACHE, *SIZE], _HELD, [_ALLOCATED, _A_TOKEN])
    batch = found["batch"].astype(float)
    return found.assign(
        held=found[_HELD],
        tokens=batch * (found["n_depth"] + found["n_prompt"] + found["n_gen"]).astype(float),
        allocated=batch * found[_ALLOCATED],
        formula=batch * found[_ALLOCATED] * found[_A_TOKEN],
        asked_bytes=batch * (found["n_depth"] + found["n_prompt"] + found["n_gen"]).astype(float) * found[_A_TOKEN],
    ).sort_values("tokens", ignore_index=True)


def sentences(rows: pd.DataFrame, words: Words) -> list[str]:
    """For each format of an engine one, with how far the engine rounds up."""
    told = []
    for _, cache in caches(rows).groupby(CACHE, dropna=False, sort=False):
        smallest, largest = cache.iloc[0], cache.iloc[-1]
        off = (cache["held"] / cache["formula"] - 1).abs().max()
        told.append(
            words["kv_cache.memory.held"].format(
                who=who(largest),
                format=largest["kv_k_format"],
                tokens=f"{int(largest['tokens']):,}",
                held=number(MB * largest["held"]),
                formula=number(MB * largest["formula"]),
                off=number(100 * off),
                few=f"{int(smallest['tokens']):,}",
                room=f"{int(smallest['allocated']):,}",
            )
        )
    return told
