"""`tokenroof export`: rows as llama-bench's table."""

import subprocess
import sys
from pathlib import Path

TOKENROOF = Path(sys.executable).with_name("tokenroof")
ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "results" / "importers" / "data"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOKENROOF, *arguments], capture_output=True, text=True, check=False, timeout=120)


def test_the_table_of_a_measured_file():
    done = run("export", ROOT / "examples" / "llama-3.2-1b.csv", "--format", "llama-bench-md")
    assert done.returncode == 0, done.stderr
    header, rule, *lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in header.strip("|").split("|")] == [
        "model", "size", "params", "backend", "threads", "test", "t/s"
    ]  # fmt: skip
    assert set(rule) <= set("|-: ")
    assert any("torch CPU" in line for line in lines)
    assert all(" ± " in line for line in lines)


def test_a_file_without_such_rates_is_one_line(tmp_path: Path):
    run("import", DATA / "llama_batched_bench.jsonl", "--machine", "box", "--model", "m", "-o", tmp_path / "x.jsonl")
    text = (tmp_path / "x.jsonl").read_text().replace('"batch":1', '"batch":2').replace('"batch": 1', '"batch": 2')
    (tmp_path / "x.jsonl").write_text(text)
    done = run("export", tmp_path / "x.jsonl", "--format", "llama-bench-md")
    assert done.returncode == 2
    assert "no measured rate of one sequence" in done.stderr


def test_another_format_is_refused():
    assert run("export", "x.csv", "--format", "excel").returncode == 2
