"""A sliding window: the rate and the bytes past it, beside those of the same shape without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.figures.texts import joined
from reports.kv_cache.depths import at, count, depths, engines
from reports.kv_cache.names import MB, who
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

_MOST = 100
_MUCH_LESS = 0.95  # of the bytes without a window; an engine that keeps the whole context takes as many


def sentences(rows: pd.DataFrame, words: Words) -> list[str]:
    """Three for each engine."""
    told = []
    found = [engine for each in engines(depths(rows)) for _, engine in each.groupby("kind", sort=False)]
    for engine in found:
        windows = [count(line, "window") for line in at(engine, engine["context"].max())]
        past = sorted(engine.loc[engine["context"] >= min(windows, default=0), "context"].unique())
        if not all(windows) or len(past) < 2:
            continue
        ends = [sorted(at(engine, context), key=lambda line: count(line, "window")) for context in (past[0], past[-1])]
        (near, near_whole), (far, far_whole) = ((lines[0], lines[-1]) for lines in ends)
        place = {
            "who": joined([who(far), far["kind"]], _MOST),
            "window": f"{min(windows):,}",
            "first": f"{int(past[0]):,}",
            "last": f"{int(past[-1]):,}",
        }
        four = {"near": near, "far": far, "near_whole": near_whole, "far_whole": far_whole}
        told += [
            words[f"kv_cache.window.{key}"].format(
                **place, **{name: number(unit * line[column]) for name, line in four.items()}
            )
            for key, column, unit in (
                ("rates", "decode_tok_s", 1.0),
                ("reads", "kv_read_bytes", MB),
                ("keeps" if far["kv_cache_bytes"] < _MUCH_LESS * far_whole["kv_cache_bytes"] else "keeps_all",
                 "kv_cache_bytes", MB),
            )
        ]  # fmt: skip
    return told
