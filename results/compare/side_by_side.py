"""The two lines of a pair in one row: what differs between them, in words, and their numbers in units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from results.compare.lines import ENGINE, METRICS, MODEL, RUNNER, WEIGHTS
from results.compare.noise import COLUMNS as NOISE
from results.compare.noise import cv_pct
from results.compare.pairing import changed
from results.compare.settings import ASKED, EFFECTIVE
from results.schema import CASE

if TYPE_CHECKING:
    from collections.abc import Sequence

# What only says something beside the same engine, as all settings do: others give the name another meaning.
_OF_ENGINE = ("backend_version", "engine_build", "engine_mode", "flash_attn", "n_gpu_layers", ASKED, EFFECTIVE)


def side_by_side(
    lines: pd.DataFrame, pairs: pd.DataFrame, shown: Sequence[str], names: tuple[str, str]
) -> pd.DataFrame:
    """One row a pair.

    Args:
        lines: as `results.compare.lines.lines_of` gives them.
        pairs: as `results.compare.pairing.pair` gives them.
        shown: the columns whose difference is said.
        names: of the two sides.

    Returns:
        The columns of `MODEL` and `CASE`, the base's; `differs`; and, `base_` and `new_` before, `side`, those of
        `ENGINE`, `WEIGHTS` and of `results.compare.noise.noise`.
    """
    base, new = (lines.loc[pairs[side]].reset_index(drop=True) for side in ("base", "new"))
    table = base[[*MODEL, *CASE]].assign(differs=_differs(base, new, shown))
    for prefix, side, name in (("base_", base, names[0]), ("new_", new, names[1])):
        table[f"{prefix}side"] = name
        table = table.join(side[[*ENGINE, *WEIGHTS, *NOISE]].add_prefix(prefix))
    return table


def in_units(pairs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The same with the metric in its unit, as `base` and `new`, and relative numbers in percent, for logarithms."""
    logs, units = [], {}
    for side in ("base", "new"):
        units[side] = np.exp(METRICS[metric] * pairs[f"{side}_log_speed"])
        for name in ("launches", "within"):
            units[f"{side}_cv_{name}_pct"] = cv_pct(pairs[f"{side}_sd_{name}"].to_numpy(float))
        for name in ("trend", "trend_low", "trend_high"):
            units[f"{side}_{name}_pct"] = 100 * np.expm1(pairs[f"{side}_{name}"])
        logs += [f"{side}_{name}" for name in NOISE if name.startswith(("log", "sd", "trend"))]
    counts = [f"{side}_{name}" for side in ("base", "new") for name in ("launches", "repetitions", "outliers")]
    return pairs.drop(columns=logs).astype(dict.fromkeys(counts, pd.Int64Dtype())).assign(**units)


def _differs(base: pd.DataFrame, new: pd.DataFrame, shown: Sequence[str]) -> list[str]:
    texts: list[dict[str, str]] = [{} for _ in range(len(base))]
    same_engine = (base["backend"] == new["backend"]).to_numpy(bool)
    for column in shown:
        one, other = (side[column].astype(object) for side in (base, new))
        told = one.notna() & other.notna() if column not in RUNNER else one.notna() | other.notna()
        differ = ((one != other) & told).to_numpy(bool)
        if column.startswith(_OF_ENGINE):
            differ = differ & same_engine
        name = column.removeprefix(ASKED).removeprefix(EFFECTIVE)
        for i in np.flatnonzero(differ).tolist():
            texts[i].setdefault(name, changed(name, one.iat[i], other.iat[i]))
    return [", ".join(text.values()) for text in texts]
