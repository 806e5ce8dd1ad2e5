"""A server's users: up to how many of them nobody waits for another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.figures.data import WORK, lines, own
from reports.kv_cache.names import who
from reports.numbers import number, percent

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

_FREE_SHARE = 0.9  # of a lone stream's rate
_ASIDE = ["context", "n_gen", "n_depth"]
_CEILINGS = ["decode_ceiling_tok_s", "decode_ceiling_spec_tok_s"]
_MEDIANS = ["decode_tok_s", *_CEILINGS]


def users_text(rows: pd.DataFrame, words: Words) -> str:
    """Say where adding users stops being free, for each server and context with several concurrencies.

    Args:
        rows: as `results.verify.verify` gives them.
        words: of the language to speak.
    """
    served = rows[(rows["backend"] == "openai") & rows["request_rate"].isna()]
    if served.empty:
        return ""
    found = lines(own(served, ("on", "prefix")), [*WORK, *_ASIDE, "kv_cache", "batch"], "request_tok_s", _MEDIANS)
    groups = found.groupby([*WORK, *_ASIDE, "kv_cache"], dropna=False, sort=False)
    return "\n".join(_sentence(group.sort_values("batch"), words) for _, group in groups if len(group) > 1)


def _sentence(group: pd.DataFrame, words: Words) -> str:
    first, last = group.iloc[0], group.iloc[-1]
    shares = group["request_tok_s"] / first["request_tok_s"]
    slower = group[shares < _FREE_SHARE]
    # Streams that never all decode at once have no decode rate together: the server lets requests wait.
    waiting = group[(group["batch"] > 1) & group["decode_tok_s"].isna()]
    if not waiting.empty and (slower.empty or waiting.iloc[0]["batch"] <= slower.iloc[0]["batch"]):
        context, streams = f"{int(first['context']):,}", waiting.iloc[0]["batch"]
        return words["serving.waiting"].format(who=who(first), context=context, streams=streams)
    if slower.empty:
        key, stops = "free", last
    elif (before := group[group["batch"] < slower.iloc[0]["batch"]].iloc[-1])["batch"] == first["batch"]:
        key, stops = "never", slower.iloc[0]
    else:
        key, stops = "until", before
    together, each = last["decode_tok_s"], number(last["request_tok_s"])
    return words[f"serving.{key}"].format(
        who=who(first),
        context=f"{int(first['context']):,}",
        first=first["batch"],
        one=number(first["request_tok_s"]),
        stops=stops["batch"],
        share=percent(float(stops["request_tok_s"] / first["request_tok_s"])),
        last=last["batch"],
        each=each,
        beyond="" if stops["batch"] == last["batch"] else words["serving.beyond"].format(last=last["batch"], each=each),
        together=words["serving.together"].format(rate=number(together)) if together > 0 else "",
        why=words["serving.why"].format(theory=_theory(first, last, words)),
    )


def _theory(first: pd.Series[Any], last: pd.Series[Any], words: Words) -> str:
    """How many times more the ceiling allows all streams together; nothing where it is not known."""
    for ceiling in _CEILINGS:
        if first[ceiling] > 0 and last[ceiling] > 0:
            ratio = number(last[ceiling] / first[ceiling])
            return words["serving.theory"].format(first=first["batch"], last=last["batch"], ratio=ratio)
    return ""
