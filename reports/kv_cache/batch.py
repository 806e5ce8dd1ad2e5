"""Several sequences at once: the weights are read once for all of them, the cache once for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.figures.data import WORK, lines, own
from reports.kv_cache.names import MB, theory, who
from reports.numbers import number, percent

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

SERIES = [*WORK, "context", "n_gen"]
_MEDIANS = ["decode_ceiling_tok_s", "streamed_bytes_per_token", "kv_read_bytes", "kv_cache_bytes"]


def batches(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """For each engine and context with several batches, their lines by batch: `SERIES`, the rate, and `_MEDIANS`."""
    found = lines(own(rows), [*SERIES, "n_depth", "batch"], "decode_tok_s", _MEDIANS)
    groups = found.groupby([*SERIES, "n_depth"], dropna=False, sort=False)
    return [group.sort_values("batch", ignore_index=True) for _, group in groups if group["batch"].nunique() > 1]


def equal_at(line: pd.Series) -> float:
    """The batch at which a step reads as much KV cache as weights, in this context."""
    return float(line["streamed_bytes_per_token"] / (line["kv_read_bytes"] / line["batch"]))


def sentences(rows: pd.DataFrame, words: Words) -> list[str]:
    """Three for each engine."""
    told = []
    for series in batches(rows):
        one, last, before = series.iloc[0], series.iloc[-1], series.iloc[-2]
        place = {"who": who(one), "context": f"{int(one['context']):,}", "first": one["batch"], "last": last["batch"]}
        kv, weights = last["kv_read_bytes"], last["streamed_bytes_per_token"]
        told += [
            words["kv_cache.batch.rates"].format(
                **place,
                one=number(one["decode_tok_s"]),
                many=number(last["decode_tok_s"]),
                ratio=number(last["decode_tok_s"] / one["decode_tok_s"]),
                theory=theory(last["decode_ceiling_tok_s"], one["decode_ceiling_tok_s"], words),
            ),
            words["kv_cache.batch.share"].format(
                **place,
                weights=number(MB * weights),
                kv=number(MB * kv),
                share=percent(kv / (kv + weights)),
                equal=number(equal_at(last)),
            ),
            words["kv_cache.batch.last"].format(
                **place,
                before=before["batch"],
                ratio=number(last["decode_tok_s"] / before["decode_tok_s"]),
                each=number(last["decode_tok_s"] / last["batch"]),
                held=number(MB * last["kv_cache_bytes"]),
            ),
        ]
    return told
