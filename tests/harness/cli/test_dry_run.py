"""`tokenroof run --dry-run`: a plan in words, and nothing written."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

DryRun = Callable[..., Any]


@pytest.fixture
def dry_run(command: DryRun, tmp_path: Path) -> DryRun:
    return partial(command, "run", "--dry-run", cwd=tmp_path, TOKENROOF_CACHE=str(tmp_path / "cache"))


def test_the_plan_is_printed_and_nothing_is_written(tmp_path: Path, dry_run: DryRun) -> None:
    case = ["-m", "gpt2-mini", "-p", "16", "-n", "8", "-d", "0,32", "-B", "2", "-r", "4", "--launches", "2"]
    result = dry_run(*case, "--backend", "simulated", "-t", "1", "--machine", "spark")
    assert result.returncode == 0, result.stderr
    machine, run, *rest = result.stdout.splitlines()
    assert re.fullmatch(r"machine {3}spark: .+, \d+ cores, [\d.]+ GB, .+", machine)
    assert run == "run       gpt2-mini bf16 on simulated -t 1 on the CPU"
    assert rest[:3] == [
        "case      p16 n8 d0 B2",
        "case      p16 n8 d32 B2",
        "rows      1 run × 2 cases × 2 launches × 4 repetitions, to spark.csv",
    ]
    # 24.7 million parameters in bf16 are 49.4 MB on disk; in memory the KV cache and the engine itself come on top.
    needs = r"needs {5}about \d+ s of measuring, (49\.\d|50\.\d) MB of disk for models, [5-9]\d\d MB of memory"
    assert re.fullmatch(needs, rest[3])
    assert rest[4:] == ["note      simulated rows measure no machine: they prove the harness's own timing"]
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_run_is_said(tmp_path: Path, dry_run: DryRun) -> None:
    case = ["-m", "llama-3.1-8b", "--backend", "simulated", "-p", "16", "-n", "8", "-d", "131000", "-B", "200"]
    result = dry_run(*case)
    if result.returncode == 2:  # a disk too small for 16 GB is told first
        assert "GB of disk" in result.stderr
    else:
        # 131 024 tokens of 200 sequences at 131 072 B each are 3.44 TB, the weights 16 GB.
        assert re.search(r"(?m)^cannot    llama-3\.1-8b bf16 on simulated needs about 3\.45 TB", result.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format_", ["json", "csv", "md"])
def test_a_plan_is_for_people(tmp_path: Path, format_: str, dry_run: DryRun) -> None:
    result = dry_run("-m", "gpt2-mini", "--backend", "simulated", "--format", format_)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert f"--format {format_}" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_told_as_by_a_run(dry_run: DryRun) -> None:
    result = dry_run("-m", "gpt2-mini", "--backend", "simulated", "-p", "300")
    assert result.returncode == 2
    assert re.search(r"tokenroof: gpt2-mini holds 256 tokens", result.stderr)
