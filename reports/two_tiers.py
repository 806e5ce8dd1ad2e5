"""A split model seen as two memories, the host's and all others: what a few points of a sweep say of the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.roofline.tiers import effective_speeds, step_seconds

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HOST, OFF_HOST = "host_read_bytes", "off_host_read_bytes"
_HOST_MEMORY = "cpu"
_LEAST_FOR_HANDOVER = 4  # points: three are told, one is predicted


def with_read_bytes(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what a step reads in the host's memory and in all others, NaN where `tiers` does not tell."""
    found = {cell: _read_bytes(cell) for cell in rows["tiers"].dropna().unique()}
    both = [found.get(cell, (np.nan, np.nan)) for cell in rows["tiers"]]
    return rows.assign(**dict(zip((HOST, OFF_HOST), np.array(both, np.float64).reshape(-1, 2).T, strict=True)))


def _read_bytes(cell: str) -> tuple[float, float]:
    tiers = [(tier["memory"] == _HOST_MEMORY, tier.get("read_bytes")) for tier in json.loads(cell)]
    if any(n_bytes is None for _, n_bytes in tiers):
        return np.nan, np.nan
    on_host, elsewhere = (float(sum(n for is_host, n in tiers if is_host is which)) for which in (True, False))
    return on_host, elsewhere


class Speeds(NamedTuple):
    """What a split model's memories reach, all that a step does counted in."""

    host: float  # bytes a second
    off_host: float  # bytes a second, of all other memories together
    handover_s: float  # what a step takes once for handing over to the other memories and back; 0: not told apart
    known: int  # points that tell it, which are the first ones and the last


def speeds_of(points: pd.DataFrame) -> Speeds | None:
    """The speeds of the memories and the time of handing over, by the two ends and the first split.

    Two ends alone, or times that leave nothing for handing over, tell the two speeds only.

    Args:
        points: with `step_s`, `HOST` and `OFF_HOST`, in the order of their layers off the host.

    Returns:
        None where they tell no speeds (see `roofline.tiers`).
    """
    if len(points) >= _LEAST_FOR_HANDOVER and (found := _solved(points.iloc[[0, 1, -1]], with_handover=True)):
        return Speeds(found[0], found[1], 1 / found[2], 3)
    found = _solved(points.iloc[[0, -1]], with_handover=False)
    return Speeds(found[0], found[1], 0.0, 2) if found else None


def predicted_s(points: pd.DataFrame, speeds: Speeds) -> Floats:
    """Seconds of a step of each point at these speeds."""
    reading = step_seconds(points[[HOST, OFF_HOST]], (speeds.host, speeds.off_host))
    return reading + speeds.handover_s * _handovers(points)


def _solved(known: pd.DataFrame, *, with_handover: bool) -> list[float] | None:
    if known[[HOST, OFF_HOST, "step_s"]].isna().to_numpy().any():
        return None
    work = known[[HOST, OFF_HOST]].to_numpy(np.float64)
    if with_handover:  # as if it were a memory of its own, of which a step reads one unit
        work = np.column_stack([work, _handovers(known)])
    found = effective_speeds(work, known["step_s"])
    return None if found is None else [float(speed) for speed in found]


def _handovers(points: pd.DataFrame) -> Floats:
    """One a step that reads anything off the host, wherever its layers are split."""
    found: Floats = np.asarray(points[OFF_HOST] > 0, np.float64)
    return found
