"""`tokenroof merge`: three lines of what it did, one line a problem, and the exit code."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from results.read import read
from results.schema import SCHEMA_VERSION

Merge = Callable[..., Any]
EXAMPLES = Path(__file__).parents[3] / "examples"
OLD = Path(__file__).parents[2] / "results" / "data" / "schema-1.csv"


@pytest.fixture
def merge(command: Merge, tmp_path: Path) -> Merge:
    return partial(command, "merge", cwd=tmp_path)


def test_the_examples_merge_and_it_says_so_in_three_lines(tmp_path: Path, merge: Merge) -> None:
    for name in ("gpt2-mini.csv", "llama-3.2-1b.csv"):
        shutil.copy(EXAMPLES / name, tmp_path)
    result = merge("gpt2-mini.csv", "llama-3.2-1b.csv", "gpt2-mini.csv", "-o", "all.parquet")
    assert (result.returncode, result.stderr) == (0, "")
    # 15 rows of three engines and 6 of two, as their files show; the 15 are given twice
    assert result.stdout.splitlines() == [
        "36 rows read from 3 of 3 files",
        "21 rows in all.parquet, 15 exact duplicates dropped, 0 marked comparable=no",
        "verified: 21 yes, 0 no, 0 without a verdict",
    ]
    assert len(read(tmp_path / "all.parquet")) == 21


def test_a_broken_file_costs_itself_and_the_exit_code(tmp_path: Path, merge: Merge) -> None:
    shutil.copy(EXAMPLES / "gpt2-mini.csv", tmp_path / "good.csv")
    text = (EXAMPLES / "gpt2-mini.csv").read_text(encoding="utf-8")
    (tmp_path / "broken.csv").write_text(text.replace('"ok"', '"fine"', 1), encoding="utf-8")
    result = merge("broken.csv", "good.csv", "-o", "all.csv")
    assert result.returncode == 1
    assert result.stderr == "left out: broken.csv: line 2, column status: 'fine' is not ok or failed or skipped\n"
    assert result.stdout.startswith("15 rows read from 1 of 2 files, 1 left out\n")
    assert len(result.stdout.splitlines()) == 3
    strict = merge("broken.csv", "good.csv", "-o", "strict.csv", "--strict")
    assert (strict.returncode, strict.stdout) == (2, "")
    assert strict.stderr == "tokenroof: broken.csv: line 2, column status: 'fine' is not ok or failed or skipped\n"
    assert not (tmp_path / "strict.csv").exists()


def test_two_machines_of_one_label_are_marked_or_told_apart(tmp_path: Path, merge: Merge) -> None:
    text = (EXAMPLES / "gpt2-mini.csv").read_text(encoding="utf-8")
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    runs = {str(run) for run in read(EXAMPLES / "gpt2-mini.csv")["run_id"]}
    other = text.replace("AMD EPYC", "Apple M5")
    for run in runs:
        other = other.replace(run, run[::-1])
    (tmp_path / "b.csv").write_text(other, encoding="utf-8")
    result = merge("a.csv", "b.csv", "-o", "all.csv")
    assert result.returncode == 0
    assert "2 machines are called amd-epyc-2-cores: cpu is AMD EPYC and Apple M5 (in a.csv, b.csv)" in result.stderr
    assert "--suffix" in result.stderr
    assert "30 marked comparable=no" in result.stdout
    told = merge("a.csv", "b.csv", "-o", "told.csv", "--suffix")
    assert "now amd-epyc-2-cores, amd-epyc-2-cores-2" in told.stderr
    assert read(tmp_path / "told.csv")["machine"].nunique() == 2


def test_old_files_are_migrated_and_never_mixed_with_new_ones(tmp_path: Path, merge: Merge) -> None:
    migrated = f"old-v{SCHEMA_VERSION}.csv"
    shutil.copy(OLD, tmp_path / "old.csv")
    shutil.copy(EXAMPLES / "gpt2-mini.csv", tmp_path)
    assert merge("gpt2-mini.csv", "-o", "new.csv").returncode == 0, "of today's schema"
    refused = merge("old.csv", "new.csv", "-o", "all.csv")
    assert refused.returncode == 2
    assert refused.stderr.strip().endswith(f"tokenroof merge old.csv -o {migrated}")
    assert merge("old.csv", "-o", migrated).returncode == 0
    both = merge(migrated, "new.csv", "-o", "all.csv")
    assert both.returncode == 0
    assert "15 rows in all.csv, 2 exact duplicates dropped" in both.stdout, "the example is the same run, migrated"
