"""What the cache saves: of a step, of all steps, and from what length on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.roofline.recompute import score_pairs, text_score_pairs, text_tokens
from reports.kv_cache.lengths import steps_of, texts
from reports.kv_cache.names import MB, MS, theory, who
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words


def sentences(rows: pd.DataFrame, words: Words) -> list[str]:
    """Three for each engine."""
    told = []
    for text in texts(rows):
        steps = steps_of(text)
        told += [_step(text, steps, words), _total(text, words), _crossover(text, steps, words)]
    return told


def _step(text: pd.DataFrame, steps: pd.DataFrame, words: Words) -> str:
    longest = steps.iloc[-1]
    last = int(longest["last"])
    return words["kv_cache.on_off.step"].format(
        who=who(text.iloc[0]),
        first=f"{int(longest['first']):,}",
        last=f"{last:,}",
        pairs=f"{score_pairs(last, kv_cache=False):,}",
        off=number(MS * longest["off"]),
        on=number(MS * longest["on"]),
        ratio=number(longest["off"] / longest["on"]),
        theory=theory(longest["off_least"], longest["on_least"], words),
    )


def _total(text: pd.DataFrame, words: Words) -> str:
    longest = text.iloc[-1]
    prompt, outputs = int(longest["n_prompt"]), int(longest["length"] - longest["n_prompt"])
    counts = {
        f"{what}_{way}": f"{count(prompt, outputs, kv_cache=way == 'on'):,}"
        for what, count in (("pairs", text_score_pairs), ("tokens", text_tokens))
        for way in ("on", "off")
    }
    return words["kv_cache.on_off.total"].format(
        outputs=f"{outputs:,}",
        off=number(longest["total_off"]),
        on=number(longest["total_on"]),
        ratio=number(longest["total_off"] / longest["total_on"]),
        theory=theory(longest["total_least_off"], longest["total_least_on"], words),
        **counts,
    )


def _crossover(text: pd.DataFrame, steps: pd.DataFrame, words: Words) -> str:
    longest = text.iloc[-1]
    peak = "peak_device_bytes" if longest["peak_device_bytes_on"] > 0 else "peak_host_bytes"
    measured, least = _slower_from(steps["off"], steps["on"]), _slower_from(steps["off_least"], steps["on_least"])
    last = f"{int(steps['last'].iloc[-1]):,}"
    key = "never" if measured is None else "crossover" if measured else "always"
    told = "past" if least is None else "from"
    known = bool((steps["off_least"] > 0).all())
    return words[f"kv_cache.on_off.{key}"].format(
        length=f"{int(steps['last'].iloc[measured or 0]):,}",
        last=last,
        theory=words[f"kv_cache.on_off.{told}"].format(length=f"{int(steps['last'].iloc[least or 0]):,}", last=last)
        if known
        else "",
        off=number(MB * longest[f"{peak}_off"]),
        on=number(MB * longest[f"{peak}_on"]),
        kv=number(MB * longest["kv_cache_bytes_on"]),
    )


def _slower_from(off: pd.Series[float], on: pd.Series[float]) -> int | None:
    """The text from which on each one's steps are slower without the cache; None: not even the last one's."""
    slower = (off > on).to_list()
    if not slower[-1]:
        return None
    return len(slower) - next((back for back, one in enumerate(reversed(slower)) if not one), len(slower))
