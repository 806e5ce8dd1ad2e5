"""`tokenroof inspect`: one line for a mistake, a page for a person, JSON for a program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOKENROOF = Path(sys.executable).with_name("tokenroof")


def _inspect(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [TOKENROOF, "inspect", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, env=os.environ | environment
    )


def test_a_page_for_a_person(tiny_gguf: Path, tmp_path: Path) -> None:
    result = _inspect(tiny_gguf, TOKENROOF_CACHE=str(tmp_path))
    assert result.returncode == 0, result.stderr
    facts = dict(re.split(r" {2,}", line, maxsplit=1) for line in result.stdout.splitlines()[:8])
    assert facts == {
        "model": "tiny-llama-f16",
        "architecture": "llama, 2 layers",
        "context": "512 tokens",
        "weights": "0.427 M parameters, 0.855 MB",
        "true bits": "16.02 a weight, scales included",
        "a token reads": "0.723 MB of the weights, beside the KV cache",
        "KV cache": "512 B a token in f16; 0.262 MB for the whole context",
        "ceiling": "this machine's bandwidth has not been measured: tokenroof machine --measure",
    }
    assert re.search(r"F16 +16 +425,984 +851,968 +99\.7%", result.stdout)
    assert re.search(r"F32 +5 +640 +2,560 +0\.3%", result.stdout)


def test_json_for_a_program(tiny_hf: Path) -> None:
    values = json.loads(_inspect(tiny_hf, "--json").stdout)
    assert values["n_params"] == 426_624
    assert values["weight_bytes"] == 853_248
    assert values["bits_per_weight"] == 16
    assert values["quantised_by"] is None
    assert values["kv_bytes_per_token"] == 512
    assert values["tensor_types"] == [{"name": "BF16", "n_tensors": 21, "n_params": 426_624, "n_bytes": 853_248}]


def test_a_model_of_ollamas_by_name(tiny_gguf: Path, tmp_path: Path) -> None:
    digest = "ab" * 32
    manifest = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    (tmp_path / "blobs").mkdir()
    shutil.copy(tiny_gguf, tmp_path / "blobs" / f"sha256-{digest}")
    values = json.loads(_inspect("ollama:tiny", "--json", OLLAMA_MODELS=str(tmp_path)).stdout)
    assert (values["model"], values["n_params"]) == ("tiny:latest", 426_624)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("llama-3.1-8b", "a preset, a shape without weights"),
        ("./none.gguf", "no such file or directory"),
        ("ollama:none", "Ollama keeps no models in"),
        ("lmstudio:a/none", "LM Studio keeps no models in"),
        ("org/none", "not in the Hugging Face cache"),
    ],
)
def test_a_mistake_is_one_line(spec: str, said: str, tmp_path: Path) -> None:
    result = _inspect(spec, HOME=str(tmp_path), OLLAMA_MODELS=str(tmp_path), HF_HOME=str(tmp_path), COLUMNS="200")
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
