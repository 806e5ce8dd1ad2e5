"""The price of a quantised KV cache on a model that was trained, for a few seconds, in the three engines."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import transformers

from harness.models.presets import PRESETS
from harness.models.synthesis import SYNTHETIC_KEY, synthesise
from results.read import read

TOKENROOF = Path(sys.executable).with_name("tokenroof")
FORMATS = {"torch": "fp8", "mlx": "8bit", "llama.cpp": "q4_0"}
_SHAPE = {
    "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 2, "hidden_size": 128,
    "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
    "max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama that has learned to count: token n + 1 follows token n."""
    directory = tmp_path_factory.mktemp("trained") / "counter"
    synthesise(
        {key: value for key, value in PRESETS["llama-3.2-1b"].items() if key != "rope_scaling"} | _SHAPE, directory
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(30):
        text = (torch.randint(0, 512, (8, 1)) + torch.arange(33)) % 512
        loss = model(text, labels=text).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.to(torch.bfloat16).save_pretrained(directory)
    (directory / "model.safetensors.index.json").unlink(missing_ok=True)  # of the shard that was there before
    config = json.loads((directory / "config.json").read_text())
    config.pop(SYNTHETIC_KEY, None)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def _run(model: str, output: Path, cache: Path, *asked: str) -> pd.DataFrame:
    flags = ["-m", model, "-p", "8", "-n", "2", "-r", "1", "--launches", "1", "-t", "1", "-o", str(output), *asked]
    environment = {**os.environ, "TOKENROOF_CACHE": str(cache)}
    command = [TOKENROOF, "run", *flags]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert result.returncode == 0, result.stderr
    return read(output)


@pytest.mark.parametrize("backend", FORMATS)
def test_a_trained_model_tells_what_its_answers_lose(
    backend: str, trained: Path, tmp_path: Path, model_cache: Path
) -> None:
    form = FORMATS[backend]
    rows = _run(str(trained), tmp_path / "a.csv", model_cache, "--backend", backend, "-ctk", form, "-ctv", form)
    (row,) = rows.to_dict("records")
    assert (row["kv_k_format"], row["kv_v_format"], row["weights_origin"]) == (form, form, "trained")
    assert 0 < row["kv_quality_kl"] < 0.5, "fewer bits change the answers, a little"
    assert 0.5 < row["kv_quality_top1"] <= 1
    assert not {"kv_quality_kl", "kv_quality_top1"} & set(json.loads(row["unavailable"]))


def test_random_weights_and_full_caches_say_why_not(trained: Path, tmp_path: Path, model_cache: Path) -> None:
    asked = ["--backend", "llama.cpp", "-ctv", "auto"]
    (row,) = _run(str(trained), tmp_path / "a.csv", model_cache, *asked, "-ctk", "f16").to_dict("records")
    assert json.loads(row["unavailable"])["kv_quality_kl"] == "the KV cache is not quantised"
    (row,) = _run("gpt2-mini", tmp_path / "b.csv", model_cache, *asked, "-ctk", "q8_0").to_dict("records")
    assert "random" in json.loads(row["unavailable"])["kv_quality_top1"]
    assert pd.isna(row["kv_quality_top1"])
