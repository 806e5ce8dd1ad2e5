"""The main job for real: the three engines on the teaching model, through the command line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.workload import sha256, token_stream
from results.read import read
from results.samples import read_samples
from results.verify import argmax_agreement, verify

pytestmark = pytest.mark.usefixtures("known_bandwidth")
TOKENROOF = Path(sys.executable).with_name("tokenroof")
ENGINES = ["torch", "mlx", "llama.cpp"]


@pytest.fixture(scope="module")
def run(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One run of two cases, one of them with a depth and two sequences."""
    output = tmp_path_factory.mktemp("run") / "mini.csv"
    asked = [
        "-m",
        "gpt2-mini",
        "-p",
        "32",
        "-n",
        "8",
        "-d",
        "0,24",
        "-B",
        "1,2",
        "-r",
        "2",
        "--launches",
        "1",
        "--format",
        "json",
    ]
    command = [TOKENROOF, "run", *asked, "--backend", ",".join(ENGINES), "-o", output]
    environment = {**os.environ, "TOKENROOF_CACHE": str(model_cache)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert result.returncode == 0, result.stderr
    return output, result.stdout


@pytest.fixture(scope="module")
def rows(run: tuple[Path, str]) -> pd.DataFrame:
    return verify(read(run[0]))


def test_every_row_is_ok_and_verified(rows: pd.DataFrame) -> None:
    assert len(rows) == 3 * 4 * 2
    assert set(rows["backend"]) == set(ENGINES)
    assert (rows["status"] == "ok").all(), rows["error"].dropna().tolist()
    assert (rows["verified"] == "yes").all(), rows["verified_why"].dropna().tolist()


def test_all_engines_did_the_same_work(rows: pd.DataFrame) -> None:
    for (depth, batch), same in rows.groupby(["n_depth", "batch"]):
        tokens = token_stream(depth + 32 + 8, batch, 50257, 1)
        assert set(same["tokens_sha256"]) == {sha256(tokens)}
        assert set(same["n_params"]) == {50257 * 384 + 256 * 384 + 3 * (12 * 384**2 + 13 * 384) + 2 * 384}
    assert rows["weights_id"].nunique() == 1


def test_engines_answer_alike_in_time(run: tuple[Path, str], rows: pd.DataFrame) -> None:
    agreement = argmax_agreement(read_samples(run[0]), rows)
    assert len(agreement) == 3 * 4
    # Random weights leave near ties, which rounding decides.
    assert (agreement["agreement"] > 0.8).all(), agreement.to_string()


def test_memory_is_the_formulas(rows: pd.DataFrame) -> None:
    # 2 · 3 layers · 384 wide · 2 bytes a token and sequence; llama.cpp and MLX allocate in blocks of 256 tokens.
    for row in rows.itertuples():
        formula = 2 * 3 * 384 * 2 * row.kv_allocated_tokens * row.batch
        assert row.kv_cache_bytes == pytest.approx(formula, rel=0.01), row.backend
        assert row.kv_allocated_tokens >= row.n_depth + 32 + 8
        assert row.peak_host_bytes > row.weight_bytes


def test_no_cell_is_empty_without_a_reason(rows: pd.DataFrame) -> None:
    # What only other rows have: failures, doubts, suites, texts, servers, and rows from elsewhere or merged.
    always = {"error", "verified_why", "verified_with", "ceiling_warning", "suite", "prompt_file"}
    always |= {"source", "derived", "comparable", "comparable_why"}
    always |= {"ttft_client_s", "ttft_client_p90_s", "ttft_client_p99_s", "request_tok_s", "output_tok_s"}
    always |= {"network_latency_s", "server_latency_s", "reasoning_tokens", "request_rate"}
    for _, row in rows.iterrows():
        reasons = json.loads(row["unavailable"])
        empty = {name for name, cell in row.items() if pd.isna(cell)} - always
        assert empty <= set(reasons), f"{row['backend']}: {empty - set(reasons)}"


def test_nothing_in_a_row_names_a_person_or_a_path(run: tuple[Path, str]) -> None:
    text = run[0].read_text()
    assert str(Path.home()) not in text
    assert str(run[0].parent) not in text
    assert not re.search(r'["/\\](tmp|home|Users|private)[/\\]', text)


def test_json_on_standard_output_is_json_alone(run: tuple[Path, str]) -> None:
    lines = json.loads(run[1])
    assert {line["backend"] for line in lines} == set(ENGINES)
    assert all(np.isfinite(line["decode_tok_s"]) and line["verified"] == "yes" for line in lines)
