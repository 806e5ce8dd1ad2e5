"""The KV-cache laboratory on the three engines, through the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from results.read import read
from results.samples import read_samples

pytestmark = pytest.mark.usefixtures("known_bandwidth")
Command = Callable[..., Any]
ENGINES = ["torch", "mlx", "llama.cpp"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """gpt2-mini at a third of its width and with 512 tokens."""
    shape = {"vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "n_layer": 2, "n_head": 2, "n_embd": 128}
    directory = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    synthesise(PRESETS["gpt2-mini"] | shape, directory)
    return str(directory)


@pytest.fixture(scope="module")
def laboratory(
    command: Command, tiny: str, model_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Two experiments in three engines: a text of 12 tokens with and without the cache, and three prefixes of it."""
    output = tmp_path_factory.mktemp("laboratory") / "kv.csv"
    flags = ["-m", tiny, "-p", "4", "-n", "8", "-r", "1", "-t", "1", "--backend", ",".join(ENGINES)]
    asked = ["--experiment", "on-off,reuse", "--prefix", "0,5,10", "-o", str(output)]
    result = command("kv-cache", *flags, *asked, TOKENROOF_CACHE=str(model_cache))
    assert result.returncode == 0, result.stderr
    return output, result.stdout


@pytest.fixture(scope="module")
def rows(laboratory: tuple[Path, str]) -> pd.DataFrame:
    return read(laboratory[0])


def test_each_length_is_measured_with_the_cache_and_without(rows: pd.DataFrame) -> None:
    assert (rows["status"] == "ok").all(), rows["error"].dropna().tolist()
    text = rows[rows["kv_cache"].isin(["on", "off"]) & (rows["n_prompt"] == 4)]
    for _, engine in text.groupby("backend"):
        assert {(row.kv_cache, row.n_gen) for row in engine.itertuples()} == {
            (way, n) for way in ("on", "off") for n in (2, 4, 8)
        }


def test_answers_do_not_depend_on_the_cache(laboratory: tuple[Path, str], rows: pd.DataFrame) -> None:
    answers = read_samples(laboratory[0]).set_index("row_id")["argmax"]
    longest = rows[(rows["n_prompt"] == 4) & (rows["n_gen"] == 8)].assign(
        argmax=lambda found: [tuple(answers[row_id]) for row_id in found["row_id"]]
    )
    for _, engine in longest.groupby("backend"):
        assert engine["argmax"].nunique() == 1
        assert engine["tokens_sha256"].nunique() == 1
        assert len(engine) == 2


def test_without_a_cache_there_are_no_bytes_of_one_where_the_engine_can_do_without(rows: pd.DataFrame) -> None:
    off = rows[rows["kv_cache"] == "off"].set_index("backend")
    assert (off.loc[["torch", "mlx"], "kv_cache_bytes"] == 0).all()
    assert (off.loc[["llama.cpp"], "kv_cache_bytes"] > 0).all(), "it attends through its cache in any case"
    assert off["kv_read_bytes"].isna().all()
    assert (off.loc[off["n_gen"] > 1, "decode_ceiling_tok_s"] > 0).all()


def test_an_equal_prefix_is_kept_whole(rows: pd.DataFrame) -> None:
    reused = rows[rows["kv_cache"] == "prefix"]
    assert {*zip(reused["backend"], reused["n_depth"], reused["n_prompt"], strict=True)} == {
        (engine, prefix, 11 - prefix) for engine in ENGINES for prefix in (0, 5, 10)
    }
    assert (reused["kv_kept_tokens"] == reused["n_depth"]).all()
    cached = rows[rows["kv_cache"] == "on"]
    assert cached["kv_kept_tokens"].isna().all()
    assert all("--kv-cache prefix" in json.loads(cell)["kv_kept_tokens"] for cell in cached["unavailable"])


def test_an_answer_after_a_reused_prefix_is_that_of_a_fresh_prefill(
    laboratory: tuple[Path, str], rows: pd.DataFrame
) -> None:
    answers = read_samples(laboratory[0]).set_index("row_id")["argmax"]
    prompts = rows[rows["n_depth"] + rows["n_prompt"] == 11]
    for _, engine in prompts.groupby("backend"):
        assert len(engine) == 4
        assert len({tuple(answers[row_id]) for row_id in engine["row_id"]}) == 1


def test_each_experiment_ends_in_sentences_and_a_figure(laboratory: tuple[Path, str]) -> None:
    output, told = laboratory
    lines = told.splitlines()
    assert len(lines) == 2 * (3 * 3 + 1)
    for number, engine in enumerate(ENGINES):
        step, total, memory = lines[3 * number : 3 * number + 3]
        assert step.startswith(f"{engine}, tiny-gpt2, bf16: the mean step from 5 to 11 tokens took ")
        assert "11 × 11 = 121 pairs" in step
        # 16 for the prompt, then 5² to 11², or 5 to 11.
        assert "492 pairs in place of 72 " in total
        assert "60 tokens through the weights in place of 11" in total
        assert " MB with it" in memory
        saved = lines[10 + 3 * number]
        assert saved.startswith(f"{engine}, tiny-gpt2, bf16: the first token after 11 tokens came in ")
    for name in ("on-off", "reuse"):
        assert output.with_name(f"kv-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_kinds_that_cannot_run_here_are_left_out_beforehand(command: Command, tiny: str, tmp_path: Path) -> None:
    output = tmp_path / "kinds.csv"
    flags = ["-m", tiny, "-p", "4", "-n", "8", "-r", "1", "-t", "1", "--device", "cpu"]
    flags += ["--backend", "torch,llama.cpp"]
    result = command("kv-cache", *flags, "--experiment", "kinds", "-o", str(output))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "offloaded cache (--cache-kind) moves layers over CUDA streams" in result.stderr
    assert "--experiment kinds: llama.cpp left out: it has one kind of cache" in result.stderr
    rows = read(output)
    assert (rows["status"] == "ok").all()
    kinds = [json.loads(cell)["asked"].get("cache_kind") for cell in rows["engine_settings"]]
    assert {None, "dynamic", "static", "quantized"} <= {*kinds}
    assert not any("offloaded" in kind for kind in kinds if kind)
    quantised = rows[[kind == "quantized" for kind in kinds]]
    assert all("random" in json.loads(cell)["kv_quality_kl"] for cell in quantised["unavailable"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["kv-cache", "-n", "300"], "gpt2-mini holds 256 tokens"),
        (["kv-cache", "--experiment", "speed"], "'speed' is none of on-off, memory, formats, heads, window"),
        (["kv-cache", "--experiment", "reuse", "--prefix", "0,239"], "--prefix 239: the prompt has 239 tokens"),
        (["kv-cache", "--experiment", "kinds", "--backend", "llama.cpp"], "torch has several"),
        (["kv-cache", "-w", "q9"], "-w q9: unknown format 'q9'"),
        (["run", "-m", "gpt2-mini", "--kv-cache", "off", "-d", "8"], "without a cache there are no tokens in it"),
        (
            ["run", "-m", "gpt2-mini", "--kv-cache", "prefix", "-p", "0", "-n", "4"],
            "-p the tokens after it, at least 1",
        ),
        (["run", "-m", "gpt2-mini", "--kv-cache", "of"], "'of' is none of on, off, prefix"),
        (
            ["run", "-m", "gpt2-mini", "--backend", "torch", "-ctk", "q8_0", "-ctv", "q8_0"],
            "it has no q8_0 KV cache (-ctk); it has fp8",
        ),
        (
            ["run", "-m", "gpt2-mini", "--backend", "torch", "--cache-kind", "paged"],
            "it has no cache of the kind 'paged' (--cache-kind); it has dynamic",
        ),
    ],
)
def test_a_mistake_is_one_line(command: Command, tmp_path: Path, asked: list[str], said: str) -> None:
    backend = ["--backend", "llama.cpp"] if "--backend" not in asked else []
    result = command(*asked, *backend, "-o", tmp_path / "a.csv")
    assert result.returncode == 2, result.stdout + result.stderr
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
