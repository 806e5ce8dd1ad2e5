"""`tokenroof models`: the presets, and the room that their files take."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.models import cache
from harness.models.presets import PRESETS

TOKENROOF = Path(sys.executable).with_name("tokenroof")
# As the models' publishers give them.
BILLIONS = {
    "llama-2-7b": 6.74, "llama-3.1-8b": 8.03, "llama-3.1-70b": 70.55, "llama-3.2-1b": 1.24, "llama-3.2-3b": 3.21,
    "mistral-7b": 7.25, "qwen3-8b": 8.19, "qwen3-32b": 32.76, "qwen3-30b-a3b": 30.53, "llama-2-70b": 68.98,
    "qwen2.5-7b": 7.62, "qwen2.5-14b": 14.77, "qwen2.5-72b": 72.71, "qwen3-4b": 4.02, "qwen3-14b": 14.77,
    "qwen3-235b-a22b": 235.09, "mixtral-8x7b": 46.70, "phi-4": 14.66, "gemma-2-9b": 9.24, "gemma-3-4b": 3.88,
    "gemma-3-12b": 11.77, "gemma-3-27b": 27.01,
}  # fmt: skip
PREDICTED_BILLIONS = {
    "ministral-3-14b": 13.51, "gemma-4-31b": 30.70, "gemma-4-26b-a4b": 25.23, "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83, "qwen3.6-27b": 26.90, "qwen3.6-35b-a3b": 34.66, "deepseek-v3": 671.03,
}  # fmt: skip
MILLIONS = {"gpt2": 124, "qwen3-0.6b": 596, "gpt2-mini": 25, "gemma-3-270m": 268, "gemma-3-1b": 1000}


def _models(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "120"}
    command = [TOKENROOF, "models", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _fill(folder: Path) -> None:
    """Two finished artifacts and one that a killed writer left, 300 MB; sparse where the system can."""
    (folder / "models" / "llama").mkdir(parents=True)
    for name in ("llama/model.safetensors", "llama-bf16.gguf", "gpt2.gguf.partial"):
        with (folder / "models" / name).open("wb") as file:
            file.truncate(100_000_000)


def test_every_preset_is_listed_with_its_parameters(own_cache: Path) -> None:
    result = _models()
    assert result.returncode == 0, result.stderr
    listed = {}
    for line in result.stdout.splitlines():
        cells = [cell.strip() for cell in line.strip("│┃").split("│")]
        if len(cells) == 6:
            listed[cells[0]] = cells[1:]
    assert set(listed) == set(PRESETS) == {*BILLIONS, *PREDICTED_BILLIONS, *MILLIONS}
    params = {name: 1e9 * n for name, n in (BILLIONS | PREDICTED_BILLIONS).items()}
    params |= {name: 1e6 * n for name, n in MILLIONS.items()}
    for name, (told, _, _, purpose, _) in listed.items():
        number, unit = told.split()
        assert float(number) * {"M": 1e6, "B": 1e9}[unit] == pytest.approx(params[name], rel=0.012), name
        assert purpose == ("predict" if name in PREDICTED_BILLIONS else "run"), name
    assert listed["llama-3.1-8b"][1:3] == ["16.1 GB", "131,072 B"]
    assert listed["llama-2-7b"][2] == "524,288 B"
    assert str(own_cache) in "".join(result.stdout.splitlines())
    assert not own_cache.exists(), "a list writes nothing"


def test_clean_frees_everything_and_says_how_much(own_cache: Path) -> None:
    _fill(own_cache)
    result = _models("--clean")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"300 MB freed in {own_cache}\n"
    assert [path for path in (own_cache / "models").iterdir() if path.suffix != ".lock"] == []
    assert _models("--clean").stdout == f"0 B freed in {own_cache}\n"


def test_clean_waits_for_no_run(own_cache: Path) -> None:
    _fill(own_cache)
    with cache.in_use():
        result = _models("--clean")
    assert result.returncode == 2
    assert re.fullmatch(r"tokenroof: a run is using the model files.*\n", result.stderr)
    assert (own_cache / "models" / "llama" / "model.safetensors").exists()
    assert _models("--clean").returncode == 0


def test_an_ended_run_leaves_no_mark(own_cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt), cache.in_use():
        raise KeyboardInterrupt
    assert not list(own_cache.glob("*"))


@pytest.mark.parametrize("command", [("run", "-m", "gpt2-mini", "-p", "4", "-n", "2"), ("machine", "--measure")])
def test_a_cache_that_is_no_directory_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "a-file"))
    result = subprocess.run(
        [TOKENROOF, *command], capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path
    )
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    said = result.stderr.splitlines()[-1]
    assert said.startswith("tokenroof: ")
    assert "a-file" in said
    assert "TOKENROOF_CACHE" in said


def test_an_empty_cache_is_clean(own_cache: Path) -> None:
    assert _models("--clean").stdout == f"0 B freed in {own_cache}\n"


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_a_preset_without_weights_is_refused_by_a_run_in_one_line(own_cache: Path, flags: list[str]) -> None:
    result = subprocess.run(
        [TOKENROOF, "run", "-m", "gpt-oss-20b", *flags], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(r"tokenroof: gpt-oss-20b: no weights can be synthesised for .*\n", result.stderr)
    assert not own_cache.exists()
