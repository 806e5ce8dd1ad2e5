"""The kinds of cache of transformers: time to first token, rate and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.kv_cache.depths import deepest, depths, engines, listed
from reports.kv_cache.names import MB, MS, who
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words


def sentences(rows: pd.DataFrame, words: Words) -> list[str]:
    """Three for each engine."""
    told = []
    for engine in engines(depths(rows)):
        variants = deepest(engine)
        place = {"who": who(variants[0]), "context": f"{int(variants[0]['context']):,}"}
        values = {
            "ttft": [number(MS * line["ttft_s"]) for line in variants],
            "rates": [number(line["decode_tok_s"]) for line in variants],
            "bytes": [number(MB * line["kv_cache_bytes"]) for line in variants],
        }
        told += [
            words[f"kv_cache.kinds.{key}"].format(**place, list=listed(variants, each, words))
            for key, each in values.items()
        ]
    return told
