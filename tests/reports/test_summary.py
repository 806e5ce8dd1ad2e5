import json
from itertools import count
from pathlib import Path
from statistics import stdev

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.summary import ENGINE, summarise
from results.read import read
from results.schema import COLUMNS, SCHEMA_VERSION
from results.store import Store
from results.verify import verify

IDS = (f"{i:012x}" for i in count())
ASKED = {"device": "auto", "weights": "bf16", "n_threads": 2, "n_gpu_layers": -1, "flash_attn": "auto"}
PROBE = [3.0, 4.0, *[0.0] * 14]


def row(backend: str = "torch", launch: int = 1, **cells: object) -> dict[str, object]:
    required = {column.name: {"text": "x", "int": 1}[column.kind] for column in COLUMNS if column.required}
    machine = {"schema_version": SCHEMA_VERSION, "machine": "spark", "backend": backend, "launch": launch}
    model = {"model": "llama", "weights_id": "w", "weight_format": "bf16", "kv_k_format": "bf16", "kv_v_format": "bf16"}
    case = {"n_depth": 0, "n_prompt": 512, "n_gen": 128, "batch": 1, "kv_cache": "on"}
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


def test_the_ceiling_stands_beside_the_rate_of_the_line(tmp_path: Path) -> None:
    rows = [row(decode_tok_s=rate, decode_ceiling_tok_s=40.0, mbu=rate / 40) for rate in (10, 20, 36)]
    rows.append(row("mlx", decode_tok_s=50.0, decode_ceiling_tok_s=40.0, mbu=1.25, ceiling_warning="above"))
    torch, mlx = summary(tmp_path, *rows).to_dict("records")
    assert (torch["decode_ceiling_tok_s"], torch["mbu"]) == (40, 0.5)
    assert pd.isna(torch["ceiling_warning"])
    assert (mlx["mbu"], mlx["ceiling_warning"]) == (1.25, "above")


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
    engine = {"backend_version": "2", "engine_settings": {"asked": ASKED}}
    facts = {"engine_mode": "eager", "device": "cpu", "n_threads": 2, "flash_attn": "sdpa"}
    facts["engine_settings"] = {"asked": ASKED, "buffers": {"CPU": 7}, "host_peak_since": "case"}
    untold = {"weight_format": None, "kv_k_format": None, "kv_v_format": None, "weights_id": None, "probe_logits": None}
    lines = summary(
        tmp_path,
        row(launch=2, status="failed", error="killed: out of memory", **engine, **untold),
        row(launch=1, decode_tok_s=10.0, **engine | facts),
        row(launch=3, status="failed", error="killed: out of memory", **engine, **untold, engine_mode="unsettled"),
        row("mlx", status="failed", error="no such kernel", **engine, **untold),
    )
    assert lines["settings"].tolist() == ["", ""]
    by_engine = lines.set_index("backend")
    assert by_engine["weight_format"]["torch"] == "bf16"
    assert by_engine["n_ok"].to_dict() == {"torch": 1, "mlx": 0}
    assert by_engine["n_failed"].to_dict() == {"torch": 2, "mlx": 1}
    assert by_engine["error"].to_dict() == {"torch": "killed: out of memory", "mlx": "no such kernel"}
    assert pd.isna(by_engine["decode_tok_s"]["mlx"])
    assert pd.isna(by_engine["verified"]["mlx"])


def test_a_failed_repetition_does_not_join_another_request_or_version(tmp_path: Path) -> None:
    many = {"engine_settings": {"asked": ASKED | {"n_threads": 100_000}}}
    few = {"engine_settings": {"asked": ASKED, "load_mode": "mmap"}}
    lines = summary(
        tmp_path,
        row(**few, backend_version="1", engine_mode="eager"),
        row(**many, backend_version="1", status="failed", error="crashed"),
        row(**few, backend_version="2", status="failed", error="no such symbol"),
    )
    assert lines[["settings", "n_ok", "n_failed"]].to_numpy().tolist() == [
        ["n_threads=2, version=1", 1, 0],
        ["n_threads=100000, version=1", 0, 1],
        ["n_threads=2, version=2", 0, 1],
    ]


def test_where_everything_failed_there_is_still_a_line(tmp_path: Path) -> None:
    (line,) = summary(tmp_path, row(status="failed", error="no")).to_dict("records")
    assert (line["n_ok"], line["n_failed"], line["launches"], line["error"]) == (0, 1, 0, "no")
    assert len(summarise(verify(read(tmp_path / "rows.csv").iloc[:0]))) == 0


def test_settings_name_only_what_was_asked_and_tells_lines_apart(tmp_path: Path) -> None:
    def asked(n_threads: int, n_ubatch: int, **effects: object) -> dict[str, object]:
        return {"engine_settings": effects | {"asked": ASKED | {"n_threads": n_threads, "n_ubatch": n_ubatch}}}

    lines = summary(
        tmp_path,
        row("torch", engine_mode="eager"),
        row("llama.cpp", n_threads=2, **asked(2, 512, n_batch=20, buffers={"CPU": 1})),
        row("llama.cpp", n_threads=2, **asked(2, 128, n_batch=30, buffers={"CPU": 2})),
        row("llama.cpp", n_threads=4, **asked(4, 128, n_batch=40, host_peak_since="launch")),
        row("mlx", weight_format="f16"),
    )
    assert lines["settings"].tolist() == [
        "",
        "n_threads=2, n_ubatch=512",
        "n_threads=2, n_ubatch=128",
        "n_threads=4, n_ubatch=128",
        "",
    ]


def test_equal_requests_are_told_apart_by_the_engine_that_met_them(tmp_path: Path) -> None:
    same = {"engine_settings": {"asked": ASKED}, "backend_version": "1"}
    lines = summary(
        tmp_path,
        row(**same, engine_mode="cuda-graph", device="cuda:0"),
        row(**same, engine_mode="eager", device="cpu"),
    )
    assert lines["settings"].tolist() == ["mode=cuda-graph, runs_on=cuda:0", "mode=eager, runs_on=cpu"]


def test_rows_that_do_not_say_what_was_asked_are_told_apart_by_their_columns(tmp_path: Path) -> None:
    lines = summary(
        tmp_path,
        row(n_threads=2, flash_attn="on", engine_settings={"buffers": 1}),
        row(n_threads=2, flash_attn="on", engine_settings={"buffers": 2}),
        row(n_threads=2, flash_attn="off"),
    )
    assert lines["n_ok"].tolist() == [2, 1]
    assert lines["settings"].tolist() == ["flash_attn=on", "flash_attn=off"]


REQUESTS = st.fixed_dictionaries({"weights": st.sampled_from([None, "bf16"]), "n_threads": st.integers(1, 2)})
ENGINES = st.tuples(*[st.sampled_from("ab")] * len(ENGINE))
EFFECTS = st.dictionaries(st.sampled_from(["buffers", "load_mode"]), st.integers(0, 2))


@given(st.lists(st.tuples(REQUESTS, ENGINES, EFFECTS), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_a_line_is_one_request_to_one_engine(runs: list[tuple[dict[str, object], tuple[str], dict[str, int]]]) -> None:
    rows = [
        row(**dict(zip(ENGINE, engine, strict=True)), engine_settings=json.dumps(effects | {"asked": asked}))
        for asked, engine, effects in runs
    ]
    table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS]).assign(probe_logits=None)
    lines = summarise(verify(table))
    assert len(lines) == len({(asked["weights"], asked["n_threads"], engine) for asked, engine, _ in runs})
    assert lines["n_ok"].sum() == len(runs)
    assert lines["settings"].is_unique
    assert not lines["settings"].str.contains("None|buffers|load_mode").any()


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
