"""llama-bench's formats: real output of one build on a CPU, and what its documentation and users show of others."""

import csv
import json
import re
import statistics
from pathlib import Path

import pytest

from results.errors import ResultsError
from results.importers import Imported, import_file, import_text
from results.importers.llama_bench_labels import FTYPE_NAMES, join_label, split_label

DATA = Path(__file__).parent / "data"
# What `-p 64 -n 32 -d 0,32` tests, as columns of ours; `-pg 32,16` is mixed.
CASES = [(0, 64, 0, None), (0, 0, 32, 0), (32, 64, 0, None), (32, 0, 32, 32)]


def cases(imported: Imported) -> list[tuple[int, int, int, int | None]]:
    return [(row["n_depth"], row["n_prompt"], row["n_gen"], row.get("decode_start")) for row in imported.rows]


def rate(row: dict) -> float:
    """The one rate that a row has."""
    (found,) = [row[name] for name in ("prefill_tok_s", "decode_tok_s") if name in row]
    return found


def columns(row: dict) -> dict:
    """A row without what names the text it came from."""
    return {name: value for name, value in row.items() if name not in {"run_id", "row_id", "derived", "repetition"}}


def test_json_gives_a_row_a_repetition():
    imported = import_file(DATA / "llama_bench.json")
    tests = [one for one in json.loads((DATA / "llama_bench.json").read_text()) if not one["n_prompt"] * one["n_gen"]]
    assert cases(imported) == [case for case in CASES for _ in range(3)]
    assert [rate(row) for row in imported.rows] == pytest.approx([x for t in tests for x in t["samples_ts"]], rel=1e-5)
    assert [row["repetition"] for row in imported.rows] == [1, 2, 3] * 4


def test_a_row_says_what_was_run():
    row = import_file(DATA / "llama_bench.json").rows[3]
    told = json.loads((DATA / "llama_bench.json").read_text())[1]
    assert row["n_params"] == told["model_n_params"]
    assert row["weight_bytes"] == told["model_size"]
    assert row["started_at"] == told["test_time"]
    assert (row["model"], row["architecture"], row["weight_format"]) == ("gpt2-mini-bf16", "gpt2", "bf16")
    assert (row["kv_k_format"], row["kv_v_format"], row["n_threads"], row["flash_attn"]) == ("f16", "f16", 2, "auto")
    assert (row["device"], row["device_name"]) == ("cpu", told["cpu_info"])
    assert row["engine_settings"]["load_mode"] == "auto"
    assert row["provenance"] == "imported"
    assert "ttft_s" not in row
    assert row["unavailable"]["ttft_s"] == "no prompt (-p 0)"


def test_a_mixed_rate_is_no_rate_of_ours():
    imported = import_file(DATA / "llama_bench.json")
    assert [one.split(": ")[1] for one in imported.left_out] == [
        "pp32+tg16 is a mixed rate, of neither prefill nor decode"
    ] * 2


def test_json_lines_are_read_like_json():
    imported = import_file(DATA / "llama_bench.jsonl")
    tests = [json.loads(line) for line in (DATA / "llama_bench.jsonl").read_text().splitlines()]
    expected = [x for t in tests if not t["n_prompt"] * t["n_gen"] for x in t["samples_ts"]]
    assert [rate(row) for row in imported.rows] == pytest.approx(expected, rel=1e-5)


def test_csv_and_sql_of_one_run_say_the_same():
    from_csv, from_sql = import_file(DATA / "llama_bench.csv"), import_file(DATA / "llama_bench.sql")
    told = [float(row["avg_ts"]) for row in csv.DictReader((DATA / "llama_bench.csv").open())]
    assert cases(from_csv) == CASES
    assert [rate(row) for row in from_csv.rows] == [told[0], told[1], told[3], told[4]]
    assert [columns(row) for row in from_csv.rows] == [columns(row) for row in from_sql.rows]
    assert from_csv.rows[0]["derived"]["prefill_tok_s"].startswith("mean of the repetitions, standard deviation 1.74")


def test_the_table_of_one_run_says_what_its_json_says():
    table, repetitions = import_file(DATA / "llama_bench.md"), import_file(DATA / "llama_bench.json")
    assert cases(table) == CASES
    for index, row in enumerate(table.rows):
        rates = [rate(one) for one in repetitions.rows[3 * index : 3 * index + 3]]
        assert rate(row) == pytest.approx(statistics.fmean(rates), abs=0.005)
        how = row["derived"]["prefill_tok_s" if row["n_prompt"] else "decode_tok_s"]
        assert f"standard deviation {statistics.stdev(rates):.2f} " in how
    row, exact = table.rows[0], repetitions.rows[0]
    assert row["weight_bytes"] == pytest.approx(exact["weight_bytes"], abs=0.005 * 2**20)
    assert row["n_params"] == pytest.approx(exact["n_params"], abs=5000)
    assert (row["backend_version"], row["engine_build"]) == (exact["backend_version"], exact["engine_build"])


def test_several_tables_with_logs_and_colours_between():
    imported = import_file(DATA / "llama_bench_pasted.txt")
    shown = [
        (r["engine_settings"]["backends"], r.get("backend_version"), r.get("device_name"), rate(r))
        for r in imported.rows
    ]
    assert shown == [
        ("Metal,BLAS", "b4229", None, 5765.41),
        ("Metal,BLAS", "b4229", None, 197.71),
        ("CUDA", "b6457", "NVIDIA GeForce RTX 5070", 378.46),
        ("CUDA", "b6457", "NVIDIA GeForce RTX 5070", 11.09),
        ("CUDA", None, None, 7001.57),
        ("ROCm,RPC", None, "AMD Radeon Graphics", 477.07),
        ("ROCm,RPC", None, "AMD Radeon Graphics", 48.94),
    ]
    assert [row.get("machine") for row in imported.rows[1:6:2]] == [None, "rtx-5070", "amd-radeon-graphics"]
    assert len({row["run_id"] for row in imported.rows}) == 4
    metal, _, moe, _, fitted, rocm, _ = imported.rows
    assert (metal["n_threads"], metal["model"], metal["weight_format"]) == (16, "qwen2 1.5B", "q4_0")
    assert (moe["n_gpu_layers"], moe["model"], moe["weight_format"]) == (99, "qwen3moe 30B.A3B", "q3_k_m")
    assert fitted["engine_settings"] == {
        "backends": "CUDA", "use_mmap": "0", "fit_target": "10000", "fit_min_ctx": "100000"
    }  # fmt: skip
    assert (fitted["flash_attn"], fitted["weight_format"]) == ("on", "q4_k_s")
    assert (rocm["flash_attn"], rocm.get("kv_k_format")) == ("on", None)


def test_depth_and_cache_formats_in_a_table():
    prefill, decode = import_file(DATA / "llama_bench_depth.md").rows
    assert (prefill["n_depth"], prefill["n_prompt"], prefill["prefill_tok_s"]) == (32768, 2048, 287.87)
    assert (decode["decode_start"], decode["n_gen"], decode["decode_tok_s"]) == (32768, 32, 46.84)
    assert (decode["kv_k_format"], decode["kv_v_format"]) == ("q8_0", "q8_0")
    assert decode["weight_bytes"] == round(16.45 * 2**30)


def test_a_table_without_its_header():
    """As a reader of a long log copies it."""
    line = "| deepseek2 671B Q2_K - Medium   | 211.03 GiB |   671.03 B | ROCm,RPC   |  99 |  tg128 | 7.87 ± 0.01 |"
    (row,) = import_text(line, "pasted").rows
    assert (row["model"], row["weight_format"], row["decode_tok_s"]) == ("deepseek2 671B", "q2_k", 7.87)
    assert "n_gpu_layers" not in row


def test_the_sign_between_mean_and_deviation_survives_another_encoding():
    for sign in ("±", "+/-", "Â±", "┬▒", "\ufffd"):
        line = f"| llama 7B F16 | 12.55 GiB | 6.74 B | CUDA | 99 | tg128 | 55.80 {sign} 0.08 |"
        assert import_text(line, "pasted").rows[0]["decode_tok_s"] == 55.80


def test_a_file_that_powershell_redirected(tmp_path: Path):
    path = tmp_path / "bench.txt"
    path.write_text((DATA / "llama_bench_depth.md").read_text(), encoding="utf-16")
    assert [rate(row) for row in import_file(path).rows] == [287.87, 46.84]


def test_the_first_version_named_each_backend_in_a_field():
    prefill, decode = import_file(DATA / "llama_bench_2023.csv").rows
    assert (prefill["prefill_tok_s"], decode["decode_tok_s"]) == (2413.341687, 132.052051)
    assert (decode["n_depth"], decode["decode_start"], decode["n_gen"]) == (0, 0, 128)
    assert decode["engine_settings"]["backends"] == "CUDA"
    assert (decode["machine"], decode["device_name"]) == ("rtx-3090-ti", "NVIDIA GeForce RTX 3090 Ti")
    assert (decode["model"], decode["weight_format"], decode["kv_k_format"]) == ("ggml-model-q4_0", "q4_0", "f16")


def test_the_documented_json_lines_of_a_gpu():
    imported = import_file(DATA / "llama_bench_4080.jsonl")
    decode = [row["decode_tok_s"] for row in imported.rows if "decode_tok_s" in row]
    assert decode == pytest.approx([120.038, 120.203, 118.624, 120.377, 119.982], rel=1e-5)
    assert statistics.fmean(decode) == pytest.approx(119.844681)  # its own avg_ts
    row = imported.rows[0]
    assert (row["model"], row["weight_format"]) == ("Qwen2.5-7B-Instruct-Q4_K_M", "q4_k_m")
    assert row["machine"] == "rtx-4080"


def test_patterns_of_tensors_hold_bars_as_cells_do():
    text = """
| model         |      size |   params | backend | ngl | ot                            | mmap |  test |          t/s |
| ------------- | --------: | -------: | ------- | --: | ----------------------------- | ---: | ----: | -----------: |
| llama 8B Q8_0 |  7.95 GiB |   8.03 B | CUDA    |  99 | blk\\.(1|2|30)\\.ffn_.*=CPU     |    0 | pp512 | 71.96 ± 1.12 |
| llama 8B Q8_0 |  7.95 GiB |   8.03 B | CUDA    |  99 | none                          |    1 | tg128 |  9.96 ± 0.02 |
"""
    prefill, decode = import_text(text, "x").rows
    assert (prefill["prefill_tok_s"], decode["decode_tok_s"]) == (71.96, 9.96)
    assert prefill["engine_settings"]["tensor_buft_overrides"] == r"blk\.(1|2|30)\.ffn_.*=CPU"
    assert [row["engine_settings"]["use_mmap"] for row in (prefill, decode)] == ["0", "1"]
    with pytest.raises(ResultsError, match="line 4: 10 cells under a header of 9"):
        import_text(text.replace("| ot ", "| ts ").replace("1|2|30", "1|30"), "x")


@pytest.mark.parametrize(("told", "layers"), [("-2", -1), ("-1", -1), ("0", 0), ("99", 99)])
def test_any_number_of_layers_below_0_is_all_of_them(told: str, layers: int):
    text = (DATA / "llama_bench_2023.csv").read_text().splitlines()[:2]
    names = text[0].split(",")
    cells = text[1].split(",")
    cells[names.index("n_gpu_layers")] = f'"{told}"'
    assert import_text(f"{text[0]}\n{','.join(cells)}\n", "x").rows[0]["n_gpu_layers"] == layers
    table = (DATA / "llama_batched_bench.txt").read_text()
    for row in import_text(re.sub(r"n_gpu_layers = -?\d+", f"n_gpu_layers = {told}", table), "x").rows:
        assert row["n_gpu_layers"] == layers


def test_a_log_around_json_and_an_array_that_was_cut_short():
    text = (DATA / "llama_bench.json").read_text()
    cut = "ggml_cuda_init: found 1 CUDA devices:\n" + text[: text.rindex('"samples_ns"')]
    imported = import_text(cut, "cut")
    assert len(imported.rows) == 12  # the last test, a mixed one, lost its end
    assert "broken or cut short" in imported.left_out[-1]


def test_files_put_one_after_the_other_are_runs_of_their_own():
    text = (DATA / "llama_bench.csv").read_text()
    imported = import_text(text + (DATA / "llama_bench_2023.csv").read_text(), "two")
    assert len(imported.rows) == 6
    assert len({row["run_id"] for row in imported.rows}) == 2


def test_the_same_text_gives_the_same_rows():
    assert import_file(DATA / "llama_bench.csv").rows == import_file(DATA / "llama_bench.csv").rows
    rows = import_file(DATA / "llama_bench.json").rows
    assert len({row["row_id"] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"99.313716"', '"fast"', "bench.csv, line 2: avg_ts: 'fast' is no number"),
        ('"99.313716"', '"-1"', "bench.csv, line 2: avg_ts: '-1' is not above 0"),
        ('"99.313716"', '"1e12"', "bench.csv, line 2: prefill_tok_s 1e+12 cannot be"),
        ('"64","0","0"', '"many","0","0"', "bench.csv, line 2: n_prompt: 'many' is no number"),
        ('"64","0","0"', '"64.5","0","0"', "bench.csv, line 2: n_prompt: '64.5' is no whole number"),
        ('"64","0","0"', '"-64","0","0"', "bench.csv, line 2: n_prompt: '-64' is not from 0 to 2147483647"),
        ('"0x0",', "", "bench.csv, line 2: 41 cells under a header of 42"),
    ],
)
def test_a_value_that_means_nothing_is_named_with_its_line(old: str, new: str, message: str):
    text = (DATA / "llama_bench.csv").read_text()
    assert old in text
    with pytest.raises(ResultsError) as caught:
        import_text(text.replace(old, new, 1), "bench.csv")
    assert str(caught.value).startswith(message)


def test_what_is_no_known_format_says_so():
    with pytest.raises(ResultsError, match=r"notes\.txt: of no format known here; known are llama-bench JSON"):
        import_text("| a | table | of something | else |\n", "notes.txt")


def test_names_from_outside_are_harmless():
    text = (DATA / "llama_bench.jsonl").read_text().splitlines()[1]
    test = json.loads(text) | {
        "model_filename": "C:\\Users\\somebody\\models\\<script>alert(1)</script>\u2028m.gguf",
        "cpu_info": "\x1b[31mCPU\x1b[0m\nsecond line <b>",
    }
    row = import_text(json.dumps(test), "x").rows[0]
    assert row["model"] == "alert(1) m"
    assert row["cpu"] == "CPU second line"


@pytest.mark.parametrize("ours", sorted(FTYPE_NAMES))
def test_labels_are_split_and_joined(ours: str):
    assert split_label(f"qwen3moe 30B.A3B {FTYPE_NAMES[ours]}") == ("qwen3moe 30B.A3B", ours)
    assert split_label(f"llama ?B (guessed) {FTYPE_NAMES[ours]}") == ("llama ?B", ours)
    assert join_label("qwen3moe 30B.A3B", ours) == f"qwen3moe 30B.A3B {FTYPE_NAMES[ours]}"


def test_labels_that_differ():
    assert split_label("llama 7B mostly Q4_0") == ("llama 7B", "q4_0")
    assert split_label("llama 7B something new") == ("llama 7B something new", None)
    assert split_label("") == ("", None)
    assert join_label("Qwen2.5-7B-Instruct-Q4_K_M", "q4_k_m") == "Qwen2.5-7B-Instruct-Q4_K_M"
    assert join_label("Qwen3-4B", "4bit") == "Qwen3-4B 4bit"
