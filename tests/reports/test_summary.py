from itertools import count
from pathlib import Path
from statistics import stdev

import pandas as pd
import pytest

from reports.summary import summarise
from results.read import read
from results.schema import COLUMNS, SCHEMA_VERSION
from results.store import Store
from results.verify import verify

IDS = (f"{i:012x}" for i in count())
PROBE = [3.0, 4.0, *[0.0] * 14]


def row(backend: str = "torch", launch: int = 1, **cells: object) -> dict[str, object]:
    required = {column.name: {"text": "x", "int": 1}[column.kind] for column in COLUMNS if column.required}
    machine = {"schema_version": SCHEMA_VERSION, "machine": "spark", "backend": backend, "launch": launch}
    model = {"model": "llama", "weights_id": "w", "weight_format": "bf16", "kv_k_format": "bf16", "kv_v_format": "bf16"}
    case = {"n_depth": 0, "n_prompt": 512, "n_gen": 128, "batch": 1}
    return required | machine | model | case | {"status": "ok", "probe_logits": PROBE, "row_id": next(IDS)} | cells


def summary(tmp_path: Path, *rows: dict[str, object]) -> pd.DataFrame:
    store = Store(tmp_path / "rows.csv")
    for cells in rows:
        store.append(cells)
    return summarise(verify(read(store.path)))


def test_rates_are_medians_of_launch_medians_with_their_standard_deviation(tmp_path: Path) -> None:
    rates = {1: [10, 11, 99], 2: [12, 13, 14], 3: [20, 20, 21]}  # medians 11, 13, 20: median 13
    rows = [row(launch=launch, decode_tok_s=rate, ttft_s=1 / rate) for launch in rates for rate in rates[launch]]
    (line,) = summary(tmp_path, *rows).to_dict("records")
    assert line["decode_tok_s"] == 13
    assert line["decode_sd_tok_s"] == pytest.approx(stdev([11, 13, 20]))
    assert line["decode_sd_of"] == "launches"
    assert line["ttft_s"] == pytest.approx(1 / 13)
    assert (line["n_ok"], line["n_failed"], line["launches"]) == (9, 0, 3)


def test_below_three_launches_the_repetitions_spread(tmp_path: Path) -> None:
    rates = {1: [10, 11, 15], 2: [12, 13, 14]}
    rows = [row(launch=launch, decode_tok_s=rate) for launch in rates for rate in rates[launch]]
    (line,) = summary(tmp_path, *rows).to_dict("records")
    assert line["decode_tok_s"] == 12  # of 11 and 13
    assert line["decode_sd_tok_s"] == pytest.approx(stdev([10, 11, 15, 12, 13, 14]))
    assert line["decode_sd_of"] == "repetitions"


def test_launches_of_different_runs_are_different_launches(tmp_path: Path) -> None:
    (line,) = summary(
        tmp_path, *(row(run_id=run, decode_tok_s=rate) for run, rate in zip("abc", (1, 2, 4), strict=True))
    )[["launches", "decode_sd_of", "decode_sd_tok_s"]].to_dict("records")
    assert line == {"launches": 3, "decode_sd_of": "launches", "decode_sd_tok_s": pytest.approx(stdev([1, 2, 4]))}


def test_one_repetition_has_no_spread_and_prefill_only_no_decode(tmp_path: Path) -> None:
    lines = summary(tmp_path, row(decode_tok_s=10.0), row(n_gen=0, ttft_s=0.5, prefill_tok_s=1024.0))
    assert lines["n_gen"].tolist() == [0, 128]
    assert lines["decode_sd_tok_s"].isna().all()
    assert lines["decode_sd_of"].isna().all()
    assert lines["decode_tok_s"].isna().tolist() == [True, False]
    assert lines["prefill_tok_s"].tolist()[0] == 1024


def test_failed_repetitions_are_counted_beside_those_that_were_asked_alike(tmp_path: Path) -> None:
    facts = {"engine_mode": "eager", "backend_version": "2", "engine_settings": {"threads": 2}}
    untold = {"weight_format": None, "kv_k_format": None, "kv_v_format": None, "weights_id": None, "probe_logits": None}
    lines = summary(
        tmp_path,
        row(launch=1, decode_tok_s=10.0, **facts),
        row(launch=2, status="failed", error="killed: out of memory", **untold),
        row(launch=3, status="failed", error="killed: out of memory", **untold),
        row("mlx", status="failed", error="no such kernel", **untold),
    )
    by_engine = lines.set_index("backend")
    assert by_engine["n_ok"].to_dict() == {"torch": 1, "mlx": 0}
    assert by_engine["n_failed"].to_dict() == {"torch": 2, "mlx": 1}
    assert by_engine["error"].to_dict() == {"torch": "killed: out of memory", "mlx": "no such kernel"}
    assert pd.isna(by_engine["decode_tok_s"]["mlx"])
    assert pd.isna(by_engine["verified"]["mlx"])


def test_where_everything_failed_there_is_still_a_line(tmp_path: Path) -> None:
    (line,) = summary(tmp_path, row(status="failed", error="no")).to_dict("records")
    assert (line["n_ok"], line["n_failed"], line["launches"], line["error"]) == (0, 1, 0, "no")
    assert len(summarise(verify(read(tmp_path / "rows.csv").iloc[:0]))) == 0


def test_settings_name_only_what_tells_lines_apart(tmp_path: Path) -> None:
    lines = summary(
        tmp_path,
        row("torch", engine_mode="eager"),
        row("llama.cpp", n_threads=2, engine_settings={"n_ubatch": 512, "n_batch": 2048}),
        row("llama.cpp", n_threads=2, engine_settings={"n_ubatch": 128, "n_batch": 2048}),
        row("llama.cpp", n_threads=4, engine_settings={"n_ubatch": 128, "n_batch": 2048}),
        row("mlx", weight_format="f16"),
    )
    assert lines["settings"].tolist() == [
        "",
        "n_threads=2, n_ubatch=512",
        "n_threads=2, n_ubatch=128",
        "n_threads=4, n_ubatch=128",
        "",
    ]


def test_peaks_are_the_largest_and_never_added(tmp_path: Path) -> None:
    lines = summary(
        tmp_path,
        row(peak_host_bytes=5, peak_device_bytes=2**40),
        row(peak_host_bytes=7),
        row("mlx", peak_host_bytes=3),
    ).set_index("backend")
    assert lines["peak_device_bytes"]["torch"] == 2**40
    assert lines["peak_host_bytes"].to_dict() == {"torch": 7, "mlx": 3}
    assert pd.isna(lines["peak_device_bytes"]["mlx"])


def test_one_wrong_launch_makes_the_line_not_verified(tmp_path: Path) -> None:
    wrong = [-logit for logit in PROBE]
    lines = summary(
        tmp_path,
        *(row("torch", launch=launch, probe_logits=wrong if launch == 2 else PROBE) for launch in (1, 2, 3)),
        row("mlx"),
        row("mlx", launch=2, probe_logits=None),
        row("llama.cpp"),
    ).set_index("backend")
    assert lines["verified"].fillna("-").to_dict() == {"torch": "no", "mlx": "-", "llama.cpp": "yes"}
    assert lines["verified_why"]["torch"].startswith("differs from ")
    assert lines["verified_why"]["mlx"] == "its probe was not scored"
    assert lines["verified_with"]["llama.cpp"] == "mlx on spark, torch on spark"


def test_lines_come_by_model_and_case_and_then_in_the_order_of_the_run(tmp_path: Path) -> None:
    lines = summary(
        tmp_path,
        row("torch", n_depth=4096),
        row("mlx", n_depth=512),
        row("torch", n_depth=512),
        row("torch", model="a"),
    )
    assert lines[["model", "n_depth", "backend"]].to_numpy().tolist() == [
        ["a", 0, "torch"],
        ["llama", 512, "mlx"],
        ["llama", 512, "torch"],
        ["llama", 4096, "torch"],
    ]
