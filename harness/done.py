"""What a file already holds of a plan, whoever does the plan's work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Done(Generic[K]):
    """The run that is resumed: the last in the file that did any of the plan's work.

    Attributes:
        run_id: its name; None where there is no such run.
        last_launch: its highest launch number.
        rows: good rows of each of its cases, by key.
    """

    run_id: str | None = None
    last_launch: int = 0
    rows: Counter[K] = field(default_factory=Counter)


NOTHING: Done[Any] = Done()


def last_run(rows: pd.DataFrame, keys: Callable[[pd.DataFrame], Iterable[K]]) -> Done[K]:
    """The last of the runs that have rows here.

    Args:
        rows: that did some of the plan's work.
        keys: of rows: which case each is of.
    """
    if rows.empty:
        return NOTHING
    run_id = str(rows["run_id"].iloc[-1])
    rows = rows[rows["run_id"] == run_id]
    return Done(run_id, int(rows["launch"].max()), Counter(keys(rows[rows["status"] == "ok"])))


def answered_for(rows: pd.DataFrame, keys: Sequence[Hashable], enough: int) -> pd.DataFrame:
    """The rows without the failures that have been made good: of a case that is complete by now.

    Args:
        rows: of one run and plan.
        keys: which case each of them is of.
        enough: good rows of a complete case.
    """
    is_good = rows["status"].eq("ok").to_numpy(bool)
    good = Counter(key for key, one in zip(keys, is_good, strict=True) if one)
    complete = np.array([good[key] >= enough for key in keys], bool)
    return rows[~complete | is_good].reset_index(drop=True)
