"""Ollama's store, built as Ollama builds it, with a real GGUF file that llama.cpp loads."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import llama_cpp
from backends.base import LoadRequest
from harness.errors import UserError
from harness.models import artifacts, source
from harness.models.stores import ollama

if TYPE_CHECKING:
    from pathlib import Path

_WEIGHTS = "application/vnd.ollama.image.model"
_NAMES = {
    "llama3.2:latest": "registry.ollama.ai/library/llama3.2/latest",
    "llama3.2:1b": "registry.ollama.ai/library/llama3.2/1b",
    "someone/tuned:v2": "registry.ollama.ai/someone/tuned/v2",
    "hf.co/org/Model-GGUF:Q4_K_M": "hf.co/org/Model-GGUF/Q4_K_M",
}


@pytest.fixture
def store(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "models"
    digest = hashlib.sha256(tiny_gguf.read_bytes()).hexdigest()
    (root / "blobs").mkdir(parents=True)
    shutil.copy(tiny_gguf, root / "blobs" / f"sha256-{digest}")
    for place in _NAMES.values():
        _write(root / "manifests" / place, [f"sha256:{digest}"])
    monkeypatch.setenv("OLLAMA_MODELS", str(root))
    return root


def _write(manifest: Path, digests: list[str]) -> None:
    other = {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'0' * 64}", "size": 7}
    layers = [{"mediaType": _WEIGHTS, "digest": digest, "size": 1} for digest in digests]
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [*layers, other]}))


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("llama3.2", "llama3.2:latest"),
        ("llama3.2:1b", "llama3.2:1b"),
        ("library/llama3.2:1b", "llama3.2:1b"),
        ("someone/tuned:v2", "someone/tuned:v2"),
        ("hf.co/org/Model-GGUF:Q4_K_M", "hf.co/org/Model-GGUF:Q4_K_M"),
    ],
)
def test_a_model_is_found_by_its_name(store: Path, asked: str, name: str) -> None:
    model = source.resolve(f"ollama:{asked}")
    assert (model.name, model.origin, model.architecture.model_type) == (name, "gguf", "llama")
    assert model.path is not None
    assert model.path.parent == store / "blobs"


def test_llama_cpp_loads_it_where_it_lies(store: Path, tiny_gguf: Path) -> None:
    artifact = artifacts.prepare(source.resolve("ollama:llama3.2"), "gguf", None)
    assert artifact.path.parent == store / "blobs"
    tokens = np.arange(3, 19, dtype=np.int32)[None]
    answers = []
    for path in (artifact.path, tiny_gguf):
        session = llama_cpp.load(LoadRequest(path, None, device="cpu"))
        session.allocate(64, 1)
        answers.append(session.logits(tokens))
        session.close()
    np.testing.assert_array_equal(*answers)


def test_a_wrong_name_lists_what_is_there(store: Path) -> None:
    with pytest.raises(UserError) as error:
        source.resolve("ollama:llama3.2:3b")
    message = str(error.value)
    assert f"not in {store}; there is llama3.2:" in message, "the nearest come first"
    assert all(name in message for name in _NAMES)
    assert message.endswith("ollama pull llama3.2:3b")


def test_a_missing_blob_and_other_weights_are_told(store: Path) -> None:
    for blob in (store / "blobs").iterdir():
        blob.unlink()
    with pytest.raises(UserError, match=r"sha256-[0-9a-f]{64} is missing; ollama pull llama3\.2"):
        source.resolve("ollama:llama3.2")
    manifest = store / "manifests" / _NAMES["llama3.2:latest"]
    for digests in ([], [f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"], ["sha256:../../etc/passwd"]):
        _write(manifest, digests)
        with pytest.raises(UserError, match="its weights are not one GGUF file"):
            source.resolve("ollama:llama3.2")


@pytest.mark.parametrize("text", ["{", "[]", "{}", "[" * 100_000])
def test_a_damaged_manifest_is_told(store: Path, text: str) -> None:
    (store / "manifests" / _NAMES["llama3.2:latest"]).write_text(text)
    with pytest.raises(UserError, match=r"latest: not a readable manifest of Ollama's"):
        source.resolve("ollama:llama3.2")


def test_no_store_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"Ollama keeps no models in .*none; the environment variable OLLAMA_MODELS"):
        source.resolve("ollama:llama3.2")


def test_the_home_directory_is_where_it_lies_by_default(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ollama").mkdir()
    store.rename(tmp_path / ".ollama" / "models")
    assert source.resolve("ollama:llama3.2").name == "llama3.2:latest"


_WORD = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True)


@given(parts=st.lists(_WORD, min_size=1, max_size=3), tag=st.none() | _WORD)
def test_any_name_is_found_where_ollama_writes_it(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], tag: str | None
) -> None:
    """`NAME` is `registry.ollama.ai/library/NAME/latest`."""
    root = tmp_path_factory.mktemp("ollama")
    whole = ["registry.ollama.ai", "library"][: 3 - len(parts)] + parts
    _write(root.joinpath("manifests", *whole, tag or "latest"), [f"sha256:{'a' * 64}"])
    (root / "blobs").mkdir()
    (root / "blobs" / f"sha256-{'a' * 64}").write_bytes(b"GGUF")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLLAMA_MODELS", str(root))
        name, blob = ollama.find("/".join(parts) + (f":{tag}" if tag else ""))
        assert blob.is_file()
        assert ollama.find(name) == (name, blob), "what it prints is a name that it takes"
