"""A split model seen as two memories, the host's and all others: what the two ends of a sweep say of its middle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from harness.roofline.tiers import effective_speeds, step_seconds

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HOST, OFF_HOST = "host_read_bytes", "off_host_read_bytes"
_HOST_MEMORY = "cpu"


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


def speeds_of_ends(points: pd.DataFrame) -> tuple[float, float] | None:
    """The speeds that the host's memory and the others reach, in bytes a second, by the first and the last point.

    Args:
        points: with `step_s`, `HOST` and `OFF_HOST`, in the order of their layers off the host.

    Returns:
        None where the two tell no speeds (see `roofline.tiers`).
    """
    ends = points.iloc[[0, -1]]
    if ends[[HOST, OFF_HOST, "step_s"]].isna().to_numpy().any():
        return None
    found = effective_speeds(ends[[HOST, OFF_HOST]], ends["step_s"])
    return None if found is None else (float(found[0]), float(found[1]))


def predicted_s(points: pd.DataFrame, speeds: tuple[float, float]) -> Floats:
    """Seconds of a step of each point at these speeds."""
    return step_seconds(points[[HOST, OFF_HOST]], speeds)
