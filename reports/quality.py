"""The formats of one model beside each other: the rate that fewer bits give, and the quality that they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.case import plainest_first
from reports.figures.data import WORK, lines, own
from results.schema import CASE

if TYPE_CHECKING:
    import pandas as pd

KL = "quality_kl"
_RATE = "decode_tok_s"
_FORMAT = ["backend", "weight_format"]


def formats(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """For each machine and trained model, its formats in the workload that most of them did.

    Of equally many it is the plainest.

    Returns:
        Lines of one workload, where two or more formats have a KL divergence: the columns of
        `reports.figures.data.WORK` and `CASE`, the decode rate with its `spread`, `quality_kl`, NaN of unquantised
        ones and of a divergence of 0, which no logarithm shows, and `settings`.
    """
    found = lines(own(rows), [*WORK, *CASE], _RATE, [KL])
    found = found.assign(**{KL: found[KL].where(found[KL] > 0)})
    groups = (_widest(model) for _, model in found.groupby(["machine", "model"], sort=False))
    return [group for group in groups if _n_judged(group) > 1]


def _n_judged(group: pd.DataFrame) -> int:
    """Formats whose quality is known."""
    return len(group.dropna(subset=[KL])[_FORMAT].drop_duplicates())


def _widest(model: pd.DataFrame) -> pd.DataFrame:
    cases = [case for _, case in plainest_first(model).groupby(CASE, dropna=False, sort=False)]
    return max(cases, key=_n_judged)
