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

from harness.machine.bandwidth.curve import Curve, Measured, Point, Rate
from harness.machine.bandwidth.document import to_document
from harness.machine.bandwidth.measured import _path
from harness.machine.hardware import inspect as this_machine

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
        "weights": "427 k parameters, 855 kB",
        "true bits": "16.02 a weight, scales included",
        "a token reads": "723 kB of the weights, beside the KV cache",
        "KV cache": "512 B a token in f16; 262 kB for the whole context",
        "ceiling": "this machine's bandwidth has not been measured: tokenroof machine --measure",
    }
    assert re.search(r"F16 +16 +425,984 +851,968 +99\.7 %", result.stdout)
    assert re.search(r"F32 +5 +640 +2,560 +0\.300 %", result.stdout)


def test_rates_have_commas_as_all_counts(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path))
    points = tuple(Point(size, {"read": Rate((50e9,))}) for size in (2**16, 2**30))
    path = _path(this_machine(), "cpu")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(to_document(Measured(Curve(points), {}, "2026-01-01T00:00:00Z"))))
    # 50 GB/s over the 723,456 bytes of weights, and over these and 511 or 512 tokens of 512 bytes.
    found = _inspect(tiny_gguf, TOKENROOF_CACHE=str(tmp_path)).stdout
    assert re.search(r"69,\d{3} tokens a second on cpu with an empty KV cache, 50,\d{3} with the context full", found)


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
