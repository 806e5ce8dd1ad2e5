"""LM Studio's store: a directory a model, of GGUF files or of MLX's."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from harness.errors import UserError
from harness.models import source

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[".lmstudio/models", ".cache/lm-studio/models"])
def store(
    request: pytest.FixtureRequest, tiny_gguf: Path, tiny_hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    root = tmp_path / request.param
    (root / "someone" / "one-GGUF").mkdir(parents=True)
    (root / "someone" / "two-GGUF").mkdir()
    shutil.copy(tiny_gguf, root / "someone" / "one-GGUF" / "one-F16.gguf")
    for name in ("two-F16.gguf", "two-Q8_0.gguf"):
        shutil.copy(tiny_gguf, root / "someone" / "two-GGUF" / name)
    shutil.copytree(tiny_hf, root / "mlx-community" / "tiny-bf16")
    monkeypatch.setenv("HOME", str(tmp_path))
    return root


@pytest.mark.parametrize(
    ("asked", "name", "origin", "place"),
    [
        ("someone/one-GGUF", "one-F16", "gguf", "someone/one-GGUF/one-F16.gguf"),
        ("someone/two-GGUF/two-Q8_0.gguf", "two-Q8_0", "gguf", "someone/two-GGUF/two-Q8_0.gguf"),
        ("mlx-community/tiny-bf16", "tiny-bf16", "hf", "mlx-community/tiny-bf16"),
    ],
)
def test_a_model_is_found_by_its_name(store: Path, asked: str, name: str, origin: str, place: str) -> None:
    model = source.resolve(f"lmstudio:{asked}")
    assert (model.name, model.origin, model.path) == (name, origin, store / place)


def test_several_files_are_listed(store: Path) -> None:
    assert store.is_dir()
    with pytest.raises(UserError, match=r"lmstudio:someone/two-GGUF holds 2 models: two-F16\.gguf, two-Q8_0\.gguf"):
        source.resolve("lmstudio:someone/two-GGUF")


@pytest.mark.parametrize("asked", ["someone/one-GUF", "someone", "", "someone/one-GGUF/none.gguf"])
def test_a_wrong_name_lists_what_is_there(store: Path, asked: str) -> None:
    with pytest.raises(UserError) as error:
        source.resolve(f"lmstudio:{asked}")
    assert f"not in {store}; there is" in str(error.value)
    for name in ("someone/one-GGUF", "someone/two-GGUF", "mlx-community/tiny-bf16"):
        assert name in str(error.value)


def test_no_store_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"LM Studio keeps no models in .*if they are elsewhere, give the path itself"):
        source.resolve("lmstudio:someone/one-GGUF")
