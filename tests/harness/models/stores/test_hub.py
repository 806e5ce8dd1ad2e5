"""Hugging Face's cache, as huggingface_hub itself fills it from a server of the same API on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.models import source
from harness.models.stores import hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_REPOSITORY = "someone/tiny-llama"
_LARGE = "merges.txt"  # more than twice what the library takes at a time


class Hub(ThreadingHTTPServer):
    """One repository; breaks off in the middle of its first answers for the large file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.directory = directory
        self.interruptions = 0
        self.fetched: list[tuple[str, str | None]] = []  # file, range

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        """Silent."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        files = sorted(self.server.directory.iterdir())
        if path in (f"/api/models/{_REPOSITORY}/revision/main", f"/api/models/{_REPOSITORY}"):
            self._json({"id": _REPOSITORY, "sha": _COMMIT, "siblings": [{"rfilename": file.name} for file in files]})
        elif path.startswith(f"/api/models/{_REPOSITORY}/tree/"):
            self._json([{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": _etag(f)} for f in files])
        elif found := re.fullmatch(rf"/{_REPOSITORY}/resolve/{_COMMIT}/(.+)", path):
            self._file(self.server.directory / found[1], with_body=with_body)
        else:
            self.send_error(404, "Repository not found")

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, file: Path, *, with_body: bool) -> None:
        content, asked = file.read_bytes(), self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", _COMMIT)
        self.send_header("ETag", f'"{_etag(file)}"')
        self.send_header("Content-Length", str(len(content) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if not with_body:
            return
        self.server.fetched.append((file.name, asked))
        if file.name == _LARGE and self.server.interruptions:
            self.server.interruptions -= 1
            content = content[: start + (len(content) - start) // 2]
        self.wfile.write(content[start:])


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture
def server(tiny_hf: Path, tmp_path: Path) -> Iterator[Hub]:
    repository = shutil.copytree(tiny_hf, tmp_path / "repository")
    (repository / _LARGE).write_bytes(bytes(24_000_000))
    (repository / "pytorch_model.bin").write_bytes(b"a pickle")
    (repository / "modeling_own.py").write_text("raise SystemExit('run')")
    with Hub(repository) as hub_server:
        thread = threading.Thread(target=hub_server.serve_forever, daemon=True)
        thread.start()
        yield hub_server
        hub_server.shutdown()
        thread.join()


def _python(code: str, home: Path, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The library reads its settings when it is imported."""
    variables = {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False, timeout=200, env=kept | variables | environment,
    )  # fmt: skip


_DOWNLOAD = f"from harness.models.stores import hub; print(hub.download({_REPOSITORY!r}))"
_RESOLVE = f"""
from harness.models import source
model = source.resolve({_REPOSITORY!r})
print(model.name, model.origin, source.n_params(model), model.path)
"""


def test_what_was_downloaded_is_a_model_to_name(server: Hub, tmp_path: Path, tiny_hf: Path) -> None:
    server.interruptions = 1
    home = tmp_path / "home"
    for _ in range(2):  # the library may go on by itself, or when it is called again
        fetched = _python(_DOWNLOAD, home, server.url)
        if fetched.returncode == 0:
            break
        assert "UserError" in fetched.stderr
    assert fetched.returncode == 0, fetched.stderr
    assert "%|" in fetched.stderr, "a progress bar"
    whole, again = [asked for name, asked in server.fetched if name == _LARGE]
    assert whole is None
    assert again is not None
    assert 0 < int(again.removeprefix("bytes=").partition("-")[0]) <= 12_000_000, "it went on where it had stopped"
    assert not {name for name, _ in server.fetched} & {"pytorch_model.bin", "modeling_own.py"}
    resolved = _python(_RESOLVE, home, server.url, HF_HUB_OFFLINE="1")
    assert resolved.stdout.split()[:3] == ["tiny-llama", "hf", "426624"], resolved.stderr
    assert resolved.stdout.split()[3] == fetched.stdout.strip()
    snapshot = home / "hub" / "models--someone--tiny-llama" / "snapshots" / _COMMIT
    for file in tiny_hf.iterdir():
        assert (snapshot / file.name).read_bytes() == file.read_bytes()
    assert (snapshot / _LARGE).stat().st_size == 24_000_000


def test_nothing_is_fetched_offline_or_where_there_is_nothing(server: Hub, tmp_path: Path) -> None:
    offline = _python(_DOWNLOAD, tmp_path / "home", server.url, HF_HUB_OFFLINE="1")
    assert "UserError: someone/tiny-llama: cannot be fetched from Hugging Face: " in offline.stderr
    unknown = _python(_DOWNLOAD.replace("tiny-llama", "none"), tmp_path / "home", server.url)
    assert "UserError: someone/none: cannot be fetched from Hugging Face: " in unknown.stderr
    assert server.fetched == []


def test_a_connection_that_keeps_breaking_is_told(server: Hub, tmp_path: Path) -> None:
    server.interruptions = 99
    broken = _python(_DOWNLOAD, tmp_path / "home", server.url)
    assert "UserError: someone/tiny-llama: cannot be fetched from Hugging Face: peer closed" in broken.stderr


# --- The cache alone


@pytest.fixture
def cache(tmp_path: Path, tiny_hf: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two repositories: symbolic links to blobs, as the library leaves them."""
    root = tmp_path / "hub"
    for repository, files in (("org--tiny", list(tiny_hf.iterdir())), ("org--tiny-GGUF", [tiny_gguf])):
        folder = root / f"models--{repository}"
        snapshot = folder / "snapshots" / _COMMIT
        for each in (folder / "blobs", folder / "refs", snapshot):
            each.mkdir(parents=True)
        (folder / "refs" / "main").write_text(_COMMIT)
        for file in files:
            shutil.copy(file, folder / "blobs" / _etag(file))
            (snapshot / file.name).symlink_to(folder / "blobs" / _etag(file))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(root))
    return root


@pytest.mark.parametrize(
    ("spec", "name", "origin"),
    [
        ("org/tiny", "tiny", "hf"),
        ("org/tiny-GGUF", "tiny-llama-f16", "gguf"),
        ("org/tiny-GGUF/tiny-llama-f16.gguf", "tiny-llama-f16", "gguf"),
    ],
)
def test_a_cached_repository_is_a_model_to_name(cache: Path, spec: str, name: str, origin: str) -> None:
    model = source.resolve(spec)
    assert (model.name, model.origin) == (name, origin)
    assert model.path is not None
    assert model.path.is_relative_to(cache)
    assert source.n_params(model) == 426_624


def test_a_commit_that_no_branch_names_is_found_too(cache: Path) -> None:
    (cache / "models--org--tiny" / "refs" / "main").unlink()
    assert source.resolve("org/tiny").name == "tiny"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("org/tinny", r"not in the Hugging Face cache, .*hub; there is org/tiny, org/tiny-GGUF; hf download org/tinny"),
        ("org/tiny-GGUF/q4.gguf", r"q4\.gguf is not in the Hugging Face cache; hf download org/tiny-GGUF q4\.gguf"),
    ],
)
def test_what_is_not_cached_is_told_with_the_way_to_fetch_it(cache: Path, spec: str, said: str) -> None:
    assert cache.is_dir()
    with pytest.raises(UserError, match=said):
        source.resolve(spec)


def test_half_a_repository_is_told(cache: Path) -> None:
    snapshot = cache / "models--org--tiny" / "snapshots" / _COMMIT
    (snapshot / "model.safetensors").rename(snapshot / "model-00001-of-00002.safetensors")
    with pytest.raises(UserError, match=r"without model-00002-of-00002\.safetensors; hf download org/tiny fetches"):
        source.resolve("org/tiny")


@given(st.text())
def test_any_text_is_an_id_or_is_not(text: str) -> None:
    if hub.is_repository(text):
        assert text.count("/") >= 1
        assert not text.startswith(("/", ".", "~"))
