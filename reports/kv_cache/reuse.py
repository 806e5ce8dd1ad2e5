"""A prompt of which a prefix is already in the cache: time to its first token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.figures.data import WORK, lines, own
from reports.kv_cache.names import MS, theory, who
from reports.numbers import number

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

PROMPT = [*WORK, "batch", "context"]
_TIME = "ttft_s"


def prompts(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """For each engine and prompt of so many tokens that was reused with several prefixes.

    Returns:
        Lines by prefix: the columns of `PROMPT`; `prefix`; `ttft_s` with its `spread`; `least_s`, at the prefill
        ceiling; `kept`, tokens; `full_s`, `full_least_s`, of a prefill of the whole prompt into an empty cache, NaN
        where none was measured.
    """
    kept = own(rows, ("on", "prefix"))
    kept = kept.assign(
        engine_mode=None, least_s=kept["batch"].astype(float) * kept["n_prompt"] / kept["prefill_ceiling_tok_s"]
    )
    found = lines(kept, [*PROMPT, "n_depth", "kv_cache"], _TIME, ["least_s", "kv_kept_tokens"])
    found = found.rename(columns={"n_depth": "prefix", "kv_kept_tokens": "kept"})
    reused = found[found["kv_cache"] == "prefix"]
    full = found[(found["kv_cache"] == "on") & (found["prefix"] == 0)]
    full = full[[*PROMPT, _TIME, "least_s"]].rename(columns={_TIME: "full_s", "least_s": "full_least_s"})
    groups = reused.merge(full, on=PROMPT, how="left").groupby(PROMPT, dropna=False, sort=False)
    return [group.sort_values("prefix", ignore_index=True) for _, group in groups if group["prefix"].nunique() > 1]


def sentences(rows: pd.DataFrame, words: Words) -> list[str]:
    """Three for each engine."""
    told = []
    for prompt in prompts(rows):
        longest = prompt.iloc[-1]
        place = {"who": who(longest), "prompt": f"{int(longest['context']):,}", "prefix": f"{int(longest['prefix']):,}"}
        if longest["full_s"] > 0:
            told.append(
                words["kv_cache.reuse.saved"].format(
                    **place,
                    full=number(MS * longest["full_s"]),
                    reused=number(MS * longest[_TIME]),
                    ratio=number(longest["full_s"] / longest[_TIME]),
                    theory=theory(longest["full_least_s"], longest["least_s"], words),
                )
            )
        entries = (
            f"{int(prefix):,}: {number(MS * seconds)}" for prefix, seconds in prompt[["prefix", _TIME]].to_numpy()
        )
        told.append(words["kv_cache.reuse.by_prefix"].format(**place, list=words["kv_cache.comma"].join(entries)))
        whole = bool((prompt["kept"] == prompt["prefix"]).all())
        kept = f"{int(longest['kept']):,}"
        told.append(words["kv_cache.reuse.kept" if whole else "kv_cache.reuse.lost"].format(**place, kept=kept))
    return told
