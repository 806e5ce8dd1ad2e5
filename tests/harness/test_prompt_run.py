"""A text as the prompt of a mixture of experts, through the command line and three engines."""

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tokenizers
import torch
import transformers

from harness.models.hf_config import read_config
from harness.models.tokenizer import write_hf
from harness.workload import sha256
from results.read import read

pytestmark = pytest.mark.usefixtures("known_bandwidth")
ENGINES = ["torch", "mlx", "llama.cpp"]
ALICE = "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: "
N_PROMPT, N_GEN, BATCHES, EXPERTS, TOP_K = 40, 8, (1, 3), 8, 2


class Runs:
    """Runs of one model with texts of one name, into one file."""

    def __init__(self, folder: Path, cache: Path, command: Callable[..., Any]) -> None:
        self.output, self.model = folder / "rows.csv", folder / "mixture"
        self._folder, self._cache, self._command = folder, cache, command
        torch.manual_seed(5)
        config = transformers.Qwen3MoeConfig(
            vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            head_dim=32, intermediate_size=32, moe_intermediate_size=32, num_experts=EXPERTS,
            num_experts_per_tok=TOP_K, norm_topk_prob=True, max_position_embeddings=128, initializer_range=0.3,
            bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(self.model)
        write_hf(self.model, read_config(self.model))

    def __call__(self, text: str, *more: str, backends: str) -> subprocess.CompletedProcess[str]:
        folder = self._folder / str(len(text))
        folder.mkdir(exist_ok=True)
        (folder / "alice.txt").write_text(text)
        asked = [
            *("run", "-m", self.model, "-w", "f32", "--prompt-file", folder / "alice.txt"),
            *("-p", str(N_PROMPT), "-n", str(N_GEN), "-B", ",".join(map(str, BATCHES)), "-r", "1", "--launches", "1"),
            *("--backend", backends, "--machine", "here", "-o", self.output, *more),
        ]
        told: subprocess.CompletedProcess[str] = self._command(*asked, TOKENROOF_CACHE=str(self._cache))
        return told

    def stream(self, text: str, batch: int) -> np.ndarray:
        """What the sequences read, by the tokenizer and with list arithmetic."""
        tokenizer = tokenizers.Tokenizer.from_file(str(self.model / "tokenizer.json"))
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        starts = [sequence * len(ids) // batch for sequence in range(batch)]
        rows = [list(itertools.islice(itertools.cycle(ids), start, start + N_PROMPT + N_GEN)) for start in starts]
        return np.array(rows, np.int32)


@pytest.fixture(scope="module")
def runs(model_cache: Path, tmp_path_factory: pytest.TempPathFactory, command: Callable[..., Any]) -> Runs:
    return Runs(tmp_path_factory.mktemp("prompt"), model_cache, command)


@pytest.fixture(scope="module")
def told(runs: Runs) -> str:
    result = runs(ALICE, backends=",".join(ENGINES))
    assert result.returncode == 0, result.stderr
    assert "it is repeated" not in result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def rows(runs: Runs, told: str) -> pd.DataFrame:
    assert told
    return read(runs.output)


def test_every_engine_reads_the_text(runs: Runs, rows: pd.DataFrame) -> None:
    assert rows["status"].eq("ok").all(), rows["error"].dropna().tolist()
    assert sorted(rows["backend"]) == sorted(ENGINES * len(BATCHES))
    assert set(rows["prompt_file"]) == {"alice.txt"}
    for batch, same in rows.groupby("batch"):
        assert set(same["tokens_sha256"]) == {sha256(runs.stream(ALICE, batch))}


def test_the_experts_that_are_hit_are_counted(rows: pd.DataFrame) -> None:
    alone, together = (rows[rows["batch"] == batch] for batch in BATCHES)
    assert set(alone["experts_hit"]) == {TOP_K}
    assert set(alone["experts_hit_expected"]) == {TOP_K}
    # All engines alike, but for a tie that rounding decides: one expert of one of 2 x 7 steps and layers.
    assert together["experts_hit"].max() - together["experts_hit"].min() <= 1 / 14
    assert together["experts_hit"].between(TOP_K, 3 * TOP_K, inclusive="neither").all()
    assert together["experts_hit_expected"].to_numpy() == pytest.approx(8 * (1 - (3 / 4) ** 3))


def test_the_text_and_the_experts_are_told(told: str) -> None:
    assert "of alice.txt" in " ".join(told.split())
    assert "a decode step of 3 sequences takes" in told
    assert "if each sequence chose by chance, it would take 4.62" in told


def test_a_resumed_run_keeps_to_its_text(runs: Runs, rows: pd.DataFrame) -> None:
    again = runs(ALICE, "--resume", backends="llama.cpp")
    assert "nothing is missing" in again.stderr
    shorter = ALICE[:60]
    other = runs(shorter, "--resume", backends="llama.cpp")
    assert other.returncode == 0, other.stderr
    assert "it is repeated" in other.stderr
    new = read(runs.output).iloc[len(rows) :]
    assert set(new["tokens_sha256"]) == {sha256(runs.stream(shorter, batch)) for batch in BATCHES}
    assert set(new["prompt_file"]) == {"alice.txt"}
    assert new["run_id"].nunique() == 1
    assert not set(new["run_id"]) & set(rows["run_id"])


def test_a_text_that_is_not_there_ends_it_in_one_line(runs: Runs) -> None:
    result = runs(ALICE, "--prompt-file", "none.txt", backends="torch")
    assert result.returncode == 2
    assert result.stderr.splitlines() == ["tokenroof: --prompt-file none.txt: there is no such file"]
