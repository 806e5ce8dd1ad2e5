"""From the rows of both sides to lines: the repetitions of one piece of work, run one way on one side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from results.compare.noise import noise
from results.compare.settings import asked_names, asked_text, settings_of
from results.errors import ResultsError
from results.schema import CASE
from results.verify import LAUNCH, SETTINGS, verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.compare.sides import Side

# -1: a time, of which less is faster
METRICS = {"decode_tok_s": 1, "prefill_tok_s": 1, "ttft_s": -1, "ttft_client_s": -1}
MODEL = ["model", "weight_format"]
# What the weights are and cost; beside rates of unequal formats.
WEIGHTS = ["weight_format", "weight_bits", "quality_kl", "quality_top1"]
# What must be equal for two rates to be of the same work.
WORK = [
    *("model", "weight_format", "weights_id", "architecture", "kv_k_format", "kv_v_format"),
    *CASE,
    *("decode_start", "tokens_sha256", "provenance"),
]
# What tells the lines of one side apart, beside what was asked for.
ENGINE = ["machine", "backend"]
RUNNER = [*ENGINE, "backend_version", "engine_build", "engine_mode", "device"]
# What else is said where it differs.
FACTS = [
    *("source", "os", "cpu", "ram_bytes", "device_name", "device_memory_bytes"),
    *("n_threads", "n_gpu_layers", "gpu_layers_effective", "flash_attn"),
]

_NEEDED = list(
    dict.fromkeys(
        [
            *(*WORK, *WEIGHTS, *RUNNER, *FACTS, *LAUNCH, *SETTINGS, *METRICS),
            *("repetition", "status", "error", "comparable", "comparable_why", "probe_logits"),
        ]
    )
)


def judged(sides: Sequence[Side]) -> pd.DataFrame:
    """The rows of all sides with `side`, their number, and `refused`, why a row must not be compared, or missing.

    Verification is computed twice: among all rows, and with the sides taken for different machines, so that a new
    build that computes something else is held against the old one. Rows of one launch share a probe: what their cases
    have made of the settings (the sizes of buffers) does not make them different ones.

    Raises:
        ResultsError: a probe is not what it should be.
    """
    rows = pd.concat([side.rows[_NEEDED].assign(side=i) for i, side in enumerate(sides)], ignore_index=True)
    names = rows["side"].map({i: f" ({side.name})" for i, side in enumerate(sides)})
    together = rows.assign(engine_settings=asked_text(rows["engine_settings"]))
    apart = together.assign(machine=rows["machine"].astype(str) + names)
    refused = pd.Series(None, rows.index, dtype=object)
    for verified in (verify(together), verify(apart)):
        why = "verified: no, " + verified["verified_why"].astype(object)
        refused = refused.fillna(why.where(verified["verified"] == "no"))
    why = "comparable: no, " + rows["comparable_why"].astype(object).fillna("a merge said so")
    return rows.assign(refused=refused.fillna(why.where(rows["comparable"] == "no")))


def lines_of(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One line for each side, work and way to run it.

    Args:
        rows: as `judged` gives them, only those with status ok; any number of them.
        metric: one of `METRICS`.

    Returns:
        `side`; the columns of `WORK`, `WEIGHTS`, `RUNNER` and `FACTS`, of `results.compare.settings.settings_of` and of
        `results.compare.noise.noise`; `refused`, why the line must not be compared: the first reason among its rows,
        or that none has the metric; or missing.

    Raises:
        ResultsError: no row has the metric.
    """
    settings = settings_of(rows)
    keys = [*(rows[name] for name in ("side", *WORK, *RUNNER)), *(settings[name] for name in asked_names(settings))]
    line = rows.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()
    _, first = np.unique(line, return_index=True)
    lines = rows[["side", *WORK, *RUNNER, *FACTS]].iloc[first].join(settings.iloc[first]).reset_index(drop=True)
    told = rows[WEIGHTS[1:]].groupby(line).first()
    refused = rows["refused"].groupby(line).first()
    value = rows[metric].to_numpy(float, na_value=np.nan)
    has = value > 0
    if not has.any():
        raise ResultsError(f"no row has a {metric} to compare; choose another --metric")
    measured = rows[has]
    of, dense = pd.factorize(line[has])
    launch = measured[LAUNCH].groupby([of, *(measured[name] for name in LAUNCH)], sort=False).ngroup().to_numpy()
    log_speed = METRICS[metric] * np.log(value[has])
    spread = noise(of, launch, measured["repetition"].to_numpy(float), log_speed).set_axis(dense)
    lines = lines.join(told).join(spread)
    return lines.assign(refused=refused.mask(lines["launches"].isna() & refused.isna(), f"has no {metric}"))
