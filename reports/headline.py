"""Which rates to show first: those of the workloads that most engines did, like beside like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.schema import CASE

if TYPE_CHECKING:
    import pandas as pd


def headlines(lines: pd.DataFrame) -> list[pd.DataFrame]:
    """The lines to show first, in groups of one model, weight format and case each, fastest line first.

    For each model and format it is the case that most engines did, and further cases for the engines that did not do
    that one; of equally many one sequence, the least depth, and the longest generation and prompt. Groups with more
    engines come first, then the slower ones: a large model tells more of a memory than a small one.

    Args:
        lines: as `reports.summary.summarise` gives them; those without a decode rate or a KV cache are passed over.
    """
    rated = lines[(lines["decode_tok_s"] > 0) & (lines["kv_cache"] == "on")]
    rated = rated.assign(engine=rated["machine"] + "\n" + rated["backend"] + "\n" + rated["settings"])
    groups = []
    for _, alike in rated.groupby(["model", "weight_format"], dropna=False, sort=False):
        rest = alike
        while len(rest):
            chosen = rest[(rest[CASE] == _widest(rest)).all(axis=1)]
            groups.append(chosen.sort_values("decode_tok_s", ascending=False, kind="stable"))
            rest = rest[~rest["engine"].isin(chosen["engine"])]
    groups.sort(key=lambda group: (-len(group), group["decode_tok_s"].max()))
    return [group.drop(columns="engine") for group in groups]


def _widest(lines: pd.DataFrame) -> pd.Series[int]:
    counts = lines.groupby(CASE)["engine"].nunique().reset_index()
    order = ["engine", "batch", "n_depth", "n_gen", "n_prompt"]
    best = counts.sort_values(order, ascending=[False, True, True, False, False], kind="stable")
    first: pd.Series[int] = best[CASE].iloc[0]
    return first
