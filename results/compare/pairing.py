"""Which line of one side is the same work as which line of the other, and why the rest has no partner.

The work must be equal in every field. What ran it (machine, engine, settings) is what is being compared, so it may
differ: a field of which no value is on both sides is compared, one of which some value is on both must be equal. Two
versions of an engine, each run with 1 and 2 threads, so make two pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.intp]
    Flags = NDArray[np.bool_]
    _Why = tuple[str, str]  # in full, and what many share

_CHUNK_CELLS = 4_000_000
_MOST_FIELDS = 3  # named in a reason
_LONGEST_VALUE, _HASH_START = 40, 12


def pair(
    lines: pd.DataFrame, usable: Flags, work: Sequence[str], runner: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Pair the usable lines of side 0 with those of side 1.

    Args:
        lines: `[n]` rows, numbered from 0: `side`, 0 or 1, and the columns of `work` and `runner`, where empty cells
            are equal.
        usable: `[n]`; other lines are only looked at to say why a line has no partner.
        work: columns that must be equal.
        runner: columns that may differ, the most telling first.

    Returns:
        `base` and `new`, numbers of lines, in the order of the base lines; and of each other usable line, by its
        number, `why` it is not paired, and `reason`: the first of what differs, without values, so that many share it.
    """
    side = lines["side"].to_numpy()
    fields = lines[[*work, *runner]]
    codes = np.stack([pd.factorize(cells, use_na_sentinel=False)[0] for _, cells in fields.items()], axis=1)
    number = np.flatnonzero(usable)
    of = side[number]
    group = _groups(codes[number], of, len(work))
    n_base, n_new = (np.bincount(group[of == one], minlength=len(number))[group] for one in (0, 1))
    paired, alone = (n_base == 1) & (n_new == 1), (n_base == 0) | (n_new == 0)

    in_order = np.lexsort((of[paired], group[paired]))
    pairs = pd.DataFrame(number[paired][in_order].reshape(-1, 2), columns=["base", "new"])
    several = ~paired & ~alone
    why = _why_several(fields, codes, side, number[several], group[several])
    for one in (0, 1):
        lonely, others = number[alone & (of == one)], np.flatnonzero(side != one)
        why |= _why_alone(fields, codes, lonely, others, len(work), base_first=one == 0)
    unpaired = pd.DataFrame.from_dict(why, orient="index", columns=["why", "reason"], dtype=object)
    return pairs.sort_values("base", ignore_index=True), unpaired.sort_index()


def changed(field: str, base: object, new: object) -> str:
    """A field's two values in words: `n_threads 2 → 1`."""
    return f"{field} {_text(base)} → {_text(new)}"


def _text(value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return "(empty)"
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_HASH_START]}…"


def _groups(codes: Numbers, side: Numbers, n_work: int) -> Numbers:
    """Which group each line is in: of equal work, then split by each further field that has a value on both sides."""
    group = _renumbered(codes[:, :n_work])
    for values in codes[:, n_work:].T:
        finer = _renumbered(np.stack([group, values], axis=1))
        size = len(finer) + 1
        on_both = np.bincount(finer[side == 0], minlength=size).astype(bool) & np.bincount(
            finer[side == 1], minlength=size
        ).astype(bool)
        must_agree = np.zeros(size, bool)
        must_agree[group[on_both[finer]]] = True
        group = _renumbered(np.stack([group, np.where(must_agree[group], values, -1)], axis=1))
    return group


def _renumbered(columns: Numbers) -> Numbers:
    """The number of each row's combination of values."""
    number = np.zeros(len(columns), np.intp)
    for values in columns.T:
        number = np.unique(number * (values.max(initial=0) + 2) + values + 1, return_inverse=True)[1]
    return number


def _why_several(
    fields: pd.DataFrame, codes: Numbers, side: Numbers, number: Numbers, group: Numbers
) -> dict[int, _Why]:
    """What tells lines of one side apart of which any could be meant."""
    why: dict[int, _Why] = {}
    for _, alike in pd.Series(number).groupby(group):
        apart = [np.ptp(codes[alike[side[alike] == one]], axis=0) for one in (0, 1)]
        differing = list(fields.columns[np.logical_or(*apart)])
        meant = f"lines could be meant, which differ in {_listed(differing) or 'nothing that a row tells'}"
        told = f"{len(alike)} {meant}: choose with --by", f"several {meant}: choose with --by"
        why |= dict.fromkeys(alike, told)
    return why


def _why_alone(
    fields: pd.DataFrame, codes: Numbers, lonely: Numbers, others: Numbers, n_work: int, *, base_first: bool
) -> dict[int, _Why]:
    """The fields in which the nearest line of the other side differs: of the work, or else of what ran it."""
    if not len(others):
        return dict.fromkeys(lonely, ("the other side has no measured row",) * 2)
    why: dict[int, _Why] = {}
    for line, other in zip(lonely, _nearest(codes, lonely, others, n_work), strict=True):
        base, new = (line, other) if base_first else (other, line)
        differing = np.flatnonzero(codes[base] != codes[new])
        work = differing[differing < n_work]
        names = [fields.columns[i] for i in (work if len(work) else differing)]
        texts = [changed(name, fields.at[base, name], fields.at[new, name]) for name in names]
        why[line] = (_nearest_differs(texts), _nearest_differs(names[:1]))  # who lacks the model need not hear the rest
    return why


def _nearest_differs(texts: Sequence[str]) -> str:
    return f"the nearest differs in {_listed(texts)}" if texts else "its counterpart is left out"


def _nearest(codes: Numbers, lonely: Numbers, others: Numbers, n_work: int) -> Numbers:
    """For each of `lonely` the one of `others` with the fewest fields of the work that differ, then of the runner."""
    work = _renumbered(codes[:, :n_work])
    here, there = (np.unique(work[lines], return_index=True) for lines in (lonely, others))
    distance_to = codes[others[there[1]], :n_work]
    nearest_work: dict[int, int] = {}
    step = max(1, _CHUNK_CELLS // (len(distance_to) * n_work))
    for start in range(0, len(here[0]), step):
        some = codes[lonely[here[1][start : start + step]], :n_work]
        distance = (some[:, None] != distance_to).sum(axis=2)
        nearest_work |= dict(zip(here[0][start : start + step], there[0][distance.argmin(axis=1)], strict=True))
    in_work = pd.Series(others).groupby(work[others]).indices
    nearest = []
    for line in lonely:
        candidates = others[in_work[nearest_work[work[line]]]]
        nearest.append(candidates[(codes[candidates] != codes[line]).sum(axis=1).argmin()])
    return np.array(nearest, np.intp)


def _listed(texts: Sequence[object]) -> str:
    more = len(texts) - _MOST_FIELDS
    return ", ".join(map(str, texts[:_MOST_FIELDS])) + (f" and {more} more" if more > 0 else "")
