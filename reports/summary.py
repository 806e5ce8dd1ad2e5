"""Many repetitions in, one line for each engine and case out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from results.safe_text import one_line
from results.schema import CASE
from results.verify import VERDICT

if TYPE_CHECKING:
    from collections.abc import Sequence

SUBJECT = ["machine", "backend", "model", "weight_format"]
ENGINE = {"backend_version": "version", "engine_build": "build", "engine_mode": "mode", "device": "runs_on"}
# What stands for the request in rows from elsewhere, whose engine_settings has no `asked`.
REQUEST = ["weight_format", "n_threads", "n_gpu_layers", "flash_attn", "kv_k_format", "kv_v_format"]
RATES = ["ttft_s", "prefill_tok_s", "decode_tok_s"]
CEILINGS = ["decode_ceiling_tok_s", "decode_ceiling_spec_tok_s", "prefill_ceiling_tok_s"]
STEP = ["streamed_bytes_per_token", "kv_read_bytes", "bandwidth_measured_gbs"]
CEILING_TEXTS = ["decode_ceiling_bound", "ceiling_warning"]
WEIGHTS = ["weight_bits", "quality_kl", "quality_top1"]
SERVED = [
    *("ttft_client_s", "ttft_client_p90_s", "ttft_client_p99_s", "server_latency_s", "network_latency_s"),
    *("request_tok_s", "output_tok_s", "itl_p50_s", "itl_p99_s"),
]
UNTOLD = {"no_ceiling_why": "decode_ceiling_tok_s", "not_kept_why": "kv_kept_tokens"}
PEAKS = ["peak_device_bytes", "peak_host_bytes"]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One line for each machine, engine, model, weight format, request and case.

    The request is `asked` in `engine_settings`; equal requests are lines of their own where `ENGINE` differs.

    Args:
        rows: as `results.verify.verify` gives them; some of them are enough, the verdicts came from all.

    Returns:
        The columns of `SUBJECT`; `settings`, what was asked, or `ENGINE`, where it tells this line from its like, as
        text; the columns of `CASE`; `n_ok` and `n_failed` repetitions, and `n_skipped` rows of cases
        that were not tried; `launches` with an ok repetition; `ttft_s`,
        `prefill_tok_s` and `decode_tok_s`, each the median of the launches' medians; `decode_sd_tok_s`, the standard
        deviation of those medians where there are at least three, else of the repetitions, and `decode_sd_of`, which
        of the two; the columns of `CEILINGS`, medians; `mbu` and `mfu`, the line's rate over its ceiling;
        those of `WEIGHTS`, medians, true bits and what they cost; those of `SERVED`, medians, of servers;
        the columns of `STEP`, medians, what a decode step reads and how fast the memory is; the columns of
        `CEILING_TEXTS`, the first; those of `UNTOLD`, why a server's cells are empty; `peak_device_bytes` and
        `peak_host_bytes`, the largest; `verified`, `verified_with` and `verified_why` of the repetition that was
        verified worst; `error`, the reasons of those that are not ok.
        Ordered by model, weight format and case, then as the rows are.
    """
    rows = _join_failed(rows.assign(asked=asked_of(rows)))
    keys = [*SUBJECT, "asked", *ENGINE, *CASE]
    rows["line"] = rows.groupby(keys, dropna=False, sort=False).ngroup()
    lines = rows.drop_duplicates("line").set_index("line")[keys]
    lines.insert(len(SUBJECT), "settings", telling_settings(lines, [*SUBJECT, *CASE]))
    ok_rows, failed_rows, skipped_rows = (rows[rows["status"] == status] for status in ("ok", "failed", "skipped"))
    ok, not_ok = ok_rows.groupby("line"), rows[rows["status"] != "ok"].groupby("line")
    launches = ok_rows.groupby(["line", "run_id", "launch"], dropna=False)[RATES].median().groupby("line")

    lines = lines.drop(columns=["asked", *ENGINE])
    lines = lines.assign(n_ok=ok.size(), launches=launches.size())
    lines = lines.assign(n_failed=failed_rows.groupby("line").size(), n_skipped=skipped_rows.groupby("line").size())
    counts = ["n_ok", "n_failed", "n_skipped", "launches"]
    lines[counts] = lines[counts].fillna(0).astype(int)
    of_launches = launches["decode_tok_s"].count() >= 3
    spread = launches["decode_tok_s"].std().where(of_launches, ok["decode_tok_s"].std())
    lines[RATES] = launches.median()
    lines["decode_sd_tok_s"] = spread
    lines["decode_sd_of"] = of_launches.map({True: "launches", False: "repetitions"}).where(spread.notna())
    medians = [*CEILINGS, *STEP, *WEIGHTS, *SERVED]
    lines[medians] = ok[medians].median()
    lines["mbu"] = lines["decode_tok_s"] / lines["decode_ceiling_tok_s"]
    lines["mfu"] = lines["prefill_tok_s"] / lines["prefill_ceiling_tok_s"]
    lines[CEILING_TEXTS] = ok[CEILING_TEXTS].first()
    lines = lines.join(_untold(ok_rows))
    lines[PEAKS] = ok[PEAKS].max()
    lines[VERDICT] = _worst(ok_rows).set_index("line")[VERDICT]
    lines["error"] = not_ok["error"].agg(lambda reasons: "; ".join(reasons.dropna().unique()))
    return lines.sort_values(["model", "weight_format", *CASE], kind="stable", ignore_index=True)


def plain(line: dict[Any, Any]) -> dict[str, Any]:
    """A line or row with None for pandas' several ways to say that a cell is empty."""
    return {name: None if pd.isna(value) else value for name, value in line.items()}


def asked_of(rows: pd.DataFrame) -> list[str]:
    """What each row was asked for, as JSON text of an object that is equal for equal requests."""
    requests = {text: _request(text) for text in rows["engine_settings"].dropna().unique()}
    asked = rows["engine_settings"].map(requests).tolist()
    silent = [number for number, text in enumerate(asked) if not isinstance(text, str)]
    for number, cells in zip(silent, rows[REQUEST].iloc[silent].to_dict("records"), strict=True):
        asked[number] = json.dumps(plain(cells), sort_keys=True)
    return asked


def _request(settings: str) -> str | None:
    """The `asked` of engine settings; None in rows from elsewhere, which have none."""
    document = json.loads(settings)
    asked = document.get("asked") if isinstance(document, dict) else None
    return json.dumps(asked, sort_keys=True) if isinstance(asked, dict) else None


def _join_failed(rows: pd.DataFrame) -> pd.DataFrame:
    """A row that is not ok cannot know what a measured one tells; it takes it from the first that was asked alike."""
    request = ["machine", "backend", "backend_version", "engine_build", "model", "asked", *CASE]
    told = ["weight_format", "engine_mode", "device"]
    failed = rows["status"] != "ok"
    ok_first = rows.loc[failed.sort_values(kind="stable").index]
    known = ok_first.groupby(request, dropna=False)[told].transform("first")
    return rows.assign(**{name: rows[name].mask(failed, known[name]) for name in told})


def telling_settings(lines: pd.DataFrame, alike: Sequence[str], sign: str = "=") -> pd.Series[str]:
    """What differs between lines that would otherwise read the same, as text.

    Args:
        lines: with `asked`, as `asked_of` gives it, and the columns of `ENGINE`.
        alike: the columns by which lines read the same.
        sign: between a name and its value.
    """
    requests = {text: json.loads(text) for text in lines["asked"].unique()}
    group = lines.groupby(list(alike), dropna=False, sort=False).ngroup()
    cells: list[pd.Series[str]] = []
    for name in dict.fromkeys(name for request in requests.values() for name in request):
        of_request = {text: _said(name, request.get(name), sign) for text, request in requests.items()}
        if len({*of_request.values()}) > 1:
            said = lines["asked"].map(of_request)
            cells.append(said.where(said.groupby(group).transform("nunique") > 1, ""))
    for column, name in ENGINE.items():
        if lines[column].nunique() > 1:
            # A failed row may lack its engine's cells, which tells nothing; a setting that was not asked for does.
            said = name + sign + lines[column]
            cells.append(said.where(said.groupby(group).transform("nunique") > 1, "").fillna(""))
    texts = [", ".join(filter(None, several)) for several in zip(*cells, strict=True)] if cells else ""
    return pd.Series(texts, lines.index, dtype="str")


def _said(name: str, value: object, sign: str) -> str:
    return "" if value is None else one_line(f"{name}{sign}{value}")  # JSON may hold what a terminal obeys


def _untold(rows: pd.DataFrame) -> pd.DataFrame:
    """For each line of a server, the first reason of each column of `UNTOLD`."""
    served = rows[rows["ttft_client_s"].notna()]
    reasons = {text: json.loads(text) for text in served["unavailable"].dropna().unique()}
    cells = {
        name: served["unavailable"].map({text: one_line(why[column]) for text, why in reasons.items() if column in why})
        for name, column in UNTOLD.items()
    }
    return pd.DataFrame(cells, dtype="str").groupby(served["line"]).first()


def _worst(rows: pd.DataFrame) -> pd.DataFrame:
    """The row of each line that was verified worst: one "no" makes a line "no", and "yes" takes all of them."""
    worst_first = rows["verified"].map({"no": 0, "yes": 2}).fillna(1).sort_values(kind="stable").index
    return rows.loc[worst_first].drop_duplicates("line")
