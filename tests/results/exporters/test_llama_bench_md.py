"""Our table beside the one that llama-bench itself printed, in the same run as its JSON (`-o json -oe md`)."""

from pathlib import Path

import pandas as pd
import pytest

from results.exporters.llama_bench_md import llama_bench_md
from results.formats import write
from results.importers import import_file
from results.read import read

DATA = Path(__file__).parents[1] / "importers" / "data"
EXAMPLE = Path(__file__).parents[3] / "examples" / "gpt2-mini.csv"


def table(name: str, tmp_path: Path, **changes: object) -> list[str]:
    """The lines that the rows of a foreign file give, after a round trip through ours."""
    rows = [row | {"machine": "box"} | changes for row in import_file(DATA / name).rows]
    write(pd.DataFrame(rows, dtype=object), tmp_path / "rows.csv")
    return llama_bench_md(read(tmp_path / "rows.csv")).splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_it_is_what_llama_bench_prints(tmp_path: Path):
    printed = [line for line in (DATA / "llama_bench.md").read_text().splitlines() if "|" in line and "+" not in line]
    machine, blank, *lines = table("llama_bench.json", tmp_path, model="gpt2 ?B")
    assert (machine, blank) == ("box", "")
    assert lines == printed


def test_a_table_that_was_read_is_written_again_but_for_the_deviation(tmp_path: Path):
    printed = (DATA / "llama_bench_depth.md").read_text().splitlines()
    lines = table("llama_bench_depth.md", tmp_path)[2:]
    assert [cells(line)[0:5] + cells(line)[-2:-1] for line in lines[2:]] == [
        cells(line)[0:5] + cells(line)[-2:-1] for line in printed[2:]
    ]
    assert [cells(line)[-1] for line in lines[2:]] == ["287.87", "46.84"]


def test_settings_have_a_column_where_they_differ(tmp_path: Path):
    on, off = (import_file(DATA / "llama_bench.json").rows for _ in range(2))
    rows = [row | {"machine": "box", "flash_attn": "on"} for row in on]
    rows += [row | {"machine": "box", "flash_attn": "off", "row_id": row["row_id"][::-1]} for row in off]
    write(pd.DataFrame(rows, dtype=object), tmp_path / "rows.csv")
    lines = llama_bench_md(read(tmp_path / "rows.csv")).splitlines()[2:]
    assert cells(lines[0])[4:7] == ["threads", "fa", "test"]
    assert [cells(line)[5] for line in lines[2:]] == ["on"] * 4 + ["off"] * 4


def test_a_measured_row_is_two_tests_of_llama_bench():
    """Decode after a prompt of 64 is their `-d 64`."""
    rows = read(EXAMPLE)
    llama = rows[(rows["backend"] == "llama.cpp") & (rows["n_prompt"] == 64)]
    lines = [cells(line) for line in llama_bench_md(rows).splitlines() if line.startswith("|")]
    shown = {(line[0], line[3], line[-2]): line[-1].split(" ± ") for line in lines[2:]}
    for column, test in (("prefill_tok_s", "pp64"), ("decode_tok_s", "tg32 @ d64")):
        mean, spread = shown["gpt2-mini BF16", "CPU", test]
        assert float(mean) == pytest.approx(llama[column].mean(), abs=0.005)
        assert float(spread) == pytest.approx(llama[column].std(), abs=0.005)


def test_failed_rows_and_batches_are_left_out(tmp_path: Path):
    assert table("llama_bench.json", tmp_path, status="failed", error="why") == []
    assert table("llama_bench.json", tmp_path, batch=2) == []
