"""Many repetitions in, one line for each engine and case out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from results.verify import VERDICT

if TYPE_CHECKING:
    from collections.abc import Hashable

SUBJECT = ["machine", "backend", "model", "weight_format"]
CASE = ["n_depth", "n_prompt", "n_gen", "batch"]
SETTINGS = [
    "backend_version",
    "engine_build",
    "engine_mode",
    "device",
    "n_threads",
    "n_gpu_layers",
    "gpu_layers_effective",
    "flash_attn",
    "kv_k_format",
    "kv_v_format",
    "engine_settings",
]
# What was asked for, and is therefore known of a failed row too.
ASKED = ["machine", "backend", "model", "n_threads", "n_gpu_layers", *CASE]
RATES = ["ttft_s", "prefill_tok_s", "decode_tok_s"]
PEAKS = ["peak_device_bytes", "peak_host_bytes"]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One line for each machine, engine, model, weight format, settings and case.

    Args:
        rows: as `results.verify.verify` gives them; some of them are enough, the verdicts came from all.

    Returns:
        The columns of `SUBJECT`; `settings`, those settings that tell this line from its like, as text; the columns
        of `CASE`; `n_ok` and `n_failed` repetitions; `launches` with an ok repetition; `ttft_s`, `prefill_tok_s` and
        `decode_tok_s`, each the median of the launches' medians; `decode_sd_tok_s`, the standard deviation of those
        medians where there are at least three, else of the repetitions, and `decode_sd_of`, which of the two;
        `peak_device_bytes` and `peak_host_bytes`, the largest; `verified`, `verified_with`, `verified_why` of the
        repetition that was verified worst; `error`, the reasons of failed ones. Ordered by model, weight format and
        case, then as the rows are.
    """
    rows = _complete_failed(rows)
    keys = [*SUBJECT, *SETTINGS, *CASE]
    rows["line"] = rows.groupby(keys, dropna=False, sort=False).ngroup()
    lines = rows.drop_duplicates("line").set_index("line")[keys]
    lines.insert(len(SUBJECT), "settings", _telling_settings(lines))
    ok_rows, failed_rows = (rows[rows["status"] == status] for status in ("ok", "failed"))
    ok, failed = ok_rows.groupby("line"), failed_rows.groupby("line")
    launches = ok_rows.groupby(["line", "run_id", "launch"])[RATES].median().groupby("line")

    lines = lines.drop(columns=SETTINGS).assign(n_ok=ok.size(), n_failed=failed.size(), launches=launches.size())
    lines = lines.fillna({"n_ok": 0, "n_failed": 0, "launches": 0})
    lines = lines.astype({"n_ok": int, "n_failed": int, "launches": int})
    of_launches = launches["decode_tok_s"].count() >= 3
    spread = launches["decode_tok_s"].std().where(of_launches, ok["decode_tok_s"].std())
    lines[RATES] = launches.median()
    lines["decode_sd_tok_s"] = spread
    lines["decode_sd_of"] = of_launches.map({True: "launches", False: "repetitions"}).where(spread.notna())
    lines[PEAKS] = ok[PEAKS].max()
    lines[VERDICT] = _worst(ok_rows).set_index("line")[VERDICT]
    lines["error"] = failed["error"].agg(lambda reasons: "; ".join(reasons.dropna().unique()))
    return lines.sort_values(["model", "weight_format", *CASE], kind="stable", ignore_index=True)


def plain(line: dict[Any, Any]) -> dict[str, Any]:
    """A line or row with None for pandas' several ways to say that a cell is empty."""
    return {name: None if pd.isna(value) else value for name, value in line.items()}


def _complete_failed(rows: pd.DataFrame) -> pd.DataFrame:
    """A failed row lacks what only a loaded engine tells; it takes it from the first row that was asked alike."""
    failed = rows["status"] == "failed"
    told = ["weight_format", *(name for name in SETTINGS if name not in ASKED)]
    known = rows.groupby(ASKED, dropna=False)[told].transform("first")
    return rows.assign(**{name: rows[name].mask(failed & rows[name].isna(), known[name]) for name in told})


def _telling_settings(lines: pd.DataFrame) -> pd.Series[str]:
    """The settings that differ between lines of one subject and case, which would otherwise read the same."""
    texts: dict[Hashable, str] = {}
    for _, alike in lines.groupby([*SUBJECT, *CASE], dropna=False):
        settings = [_flat(plain(line)) for line in alike[SETTINGS].to_dict("records")]
        names = dict.fromkeys(name for setting in settings for name in setting)
        telling = [name for name in names if len({str(setting.get(name)) for setting in settings}) > 1]
        for line, setting in zip(alike.index, settings, strict=True):
            texts[line] = ", ".join(f"{name}={setting.get(name)}" for name in telling)
    return pd.Series(texts)


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = json.loads(settings.pop("engine_settings") or "{}")
    return settings | more


def _worst(rows: pd.DataFrame) -> pd.DataFrame:
    """The row of each line that was verified worst: one "no" makes a line "no", and "yes" takes all of them."""
    worst_first = rows["verified"].map({"no": 0, "yes": 2}).fillna(1).sort_values(kind="stable").index
    return rows.loc[worst_first].drop_duplicates("line")
