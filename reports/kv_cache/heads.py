"""Grouped heads: fewer keys and values for the same queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.kv_cache.depths import deepest, depths, engines, listed
from reports.kv_cache.names import theory, who
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words


def sentences(rows: pd.DataFrame, words: Words) -> list[str]:
    """Three for each engine."""
    told = []
    for engine in engines(depths(rows)):
        variants = deepest(engine)
        most, fewest = variants[0], variants[-1]
        place = {"who": who(most), "context": f"{int(most['context']):,}"}
        sizes = [f"{line['kv_bytes_per_token']:,.0f}" for line in variants]
        rates = [number(line["decode_tok_s"]) for line in variants]
        told += [
            words["kv_cache.heads.bytes"].format(**place, list=listed(variants, sizes, words)),
            words["kv_cache.heads.rates"].format(**place, list=listed(variants, rates, words)),
            words["kv_cache.heads.gain"].format(
                **place,
                bytes=number(most["kv_bytes_per_token"] / fewest["kv_bytes_per_token"]),
                ratio=number(fewest["decode_tok_s"] / most["decode_tok_s"]),
                theory=theory(fewest["decode_ceiling_tok_s"], most["decode_ceiling_tok_s"], words),
            ),
        ]
    return told
