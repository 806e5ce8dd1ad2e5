"""`tokenroof import`: files of other tools become a result file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from results.read import read

Import = Callable[..., Any]
DATA = Path(__file__).parents[2] / "results" / "importers" / "data"


@pytest.fixture
def run(command: Import) -> Import:
    return partial(command, "import")


def test_files_of_several_formats_go_into_one(tmp_path: Path, run: Import):
    files = [DATA / name for name in ("llama_bench.json", "mlx_lm_benchmark.txt", "llama_bench_4080.jsonl")]
    done = run(*files, "--machine", "box", "-o", tmp_path / "all.parquet")
    assert done.returncode == 0, done.stderr
    assert "llama_bench.json: 12 rows of llama-bench" in done.stdout
    assert "left out, line 94: pp32+tg16 is a mixed rate" in done.stdout
    rows = read(tmp_path / "all.parquet")
    assert rows.groupby("backend").size().to_dict() == {"llama.cpp": 22, "mlx": 3}
    assert set(rows["machine"]) == {"box"}
    assert set(rows["provenance"]) == {"imported"}
    assert rows["prefill_flops"].dtype == "Int64"


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_published_rates_in_each_format(ending: str, tmp_path: Path, run: Import):
    path = tmp_path / f"published{ending}"
    assert run("--published", "-o", path).returncode == 0
    rows = read(path)
    assert len(rows) == 159
    assert rows["decode_tok_s"].iloc[0] == 22.31


def test_a_machine_that_the_text_names(tmp_path: Path, run: Import):
    assert run(DATA / "llama_bench_4080.jsonl", "-o", tmp_path / "x.csv").returncode == 0
    rows = read(tmp_path / "x.csv")
    assert set(rows["machine"]) == {"rtx-4080"}
    decode = rows[rows["n_gen"] > 0]
    read_bytes = 4_677_120_000 - 152_064 * 3584 * 4.5 / 8  # the input embedding, in q4_k, is only looked up
    assert decode["decode_ceiling_spec_tok_s"].tolist() == pytest.approx([716.8e9 / read_bytes] * 5, rel=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name files to import, or --published"),
        ((DATA / "llama_bench.json",), "name the file to write: -o"),
        ((DATA / "llama_bench.md", "-o", "x.csv"), "does not name the machine here; add --machine"),
        ((DATA / "none.json", "-o", "x.csv"), "none.json: No such file or directory"),
        ((Path(__file__), "-o", "x.csv"), "of no format known here"),
        ((DATA / "llama_bench.json", "-o", "x.xlsx"), "end in .csv, .jsonl or .parquet"),
        ((DATA / "llama_bench.json", "-o", DATA / "llama_bench.csv"), "is there already"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str | Path, ...], message: str, tmp_path: Path, run: Import):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
