"""Fewer bytes an element of the cache: the bytes, the rate at depth, and what the answers lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.kv_cache.depths import deepest, depths, engines, listed
from reports.kv_cache.names import who
from reports.numbers import number, percent

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words


def sentences(rows: pd.DataFrame, words: Words) -> list[str]:
    """Three for each engine."""
    told = []
    for engine in engines(depths(rows)):
        variants = deepest(engine)
        place = {"who": who(variants[0]), "context": f"{int(variants[0]['context']):,}"}
        sizes = [f"{line['kv_bytes_per_token']:,.0f}" for line in variants]
        rates = [number(line["decode_tok_s"]) for line in variants]
        told.append(words["kv_cache.formats.bytes"].format(**place, list=listed(variants, sizes, words)))
        told.append(words["kv_cache.formats.rates"].format(**place, list=listed(variants, rates, words)))
        judged = [line for line in variants if line["kv_quality_top1"] >= 0]
        losses = [f"{number(line['kv_quality_kl'])} ({percent(line['kv_quality_top1'])} %)" for line in judged]
        key = "quality" if judged else "no_quality"
        told.append(words[f"kv_cache.formats.{key}"].format(**place, list=listed(judged, losses, words)))
    return told
