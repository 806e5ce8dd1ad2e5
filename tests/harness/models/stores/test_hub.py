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
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from harness.errors import UserError
from harness.models import sizes, source
from harness.models.stores import hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_REPOSITORY, _FILES, _GATED = "someone/tiny-llama", "someone/tiny-GGUF", "someone/gated"
_PICKLED = "someone/pickled"
_LARGE = "merges.txt"  # more than twice what the library takes at a time
_PIECE_BYTES = 1_000_000


class Hub(ThreadingHTTPServer):
    """Some repositories; breaks off in the middle of its first answers for the large file."""

    def __init__(self, repositories: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.interruptions = 0
        self.wait_s = 0.0  # before each piece of a file
        self.claimed_bytes: int | None = None  # of each file, in place of the truth
        self.fetched: list[tuple[str, str | None]] = []  # file, range

    def handle_error(self, *_: object) -> None:
        """Whoever was answered has been killed."""

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
        path = self.path.partition("?")[0].removeprefix("/api/models")
        repository = "/".join(path.split("/")[1:3])
        directory = self.server.repositories.get(repository)
        rest = path.removeprefix(f"/{repository}")
        if directory is None:
            self._refuse(401, "RepoNotFound", "Repository not found")
        elif rest in ("", "/revision/main"):
            siblings = [{"rfilename": file.name, "size": self._size(file)} for file in sorted(directory.iterdir())]
            self._json({"id": repository, "sha": _COMMIT, "siblings": siblings})
        elif rest.startswith("/tree/"):
            files = sorted(directory.iterdir())
            self._json([{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": _etag(f)} for f in files])
        elif repository == _GATED:
            self._refuse(403, "GatedRepo", "Access to it is restricted")
        elif found := re.fullmatch(rf"/resolve/{_COMMIT}/(.+)", rest):
            self._file(directory / found[1], with_body=with_body)
        else:
            self.send_error(404)

    def _size(self, file: Path) -> int:
        return file.stat().st_size if self.server.claimed_bytes is None else self.server.claimed_bytes

    def _refuse(self, code: int, word: str, message: str) -> None:
        self.send_response(code)
        self.send_header("X-Error-Code", word)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

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
        for begin in range(start, len(content), _PIECE_BYTES):
            time.sleep(self.server.wait_s)
            self.wfile.write(content[begin : begin + _PIECE_BYTES])


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture
def server(tiny_hf: Path, tiny_gguf: Path, tmp_path: Path) -> Iterator[Hub]:
    repository = shutil.copytree(tiny_hf, tmp_path / "repository")
    (repository / _LARGE).write_bytes(bytes(24_000_000))
    (repository / "pytorch_model.bin").write_bytes(b"a pickle")
    (repository / "modeling_own.py").write_text("raise SystemExit('run')")
    files = tmp_path / "files"
    files.mkdir()
    for name in ("tiny-F16.gguf", "tiny-Q4_K_M.gguf", "mmproj-F16.gguf"):
        shutil.copy(tiny_gguf, files / name)
    for number in (1, 2):  # by their names alone; what is in them is not looked at here
        (files / f"tiny-Q8_0-0000{number}-of-00002.gguf").write_bytes(bytes(100 + number))
    pickled = shutil.copytree(tiny_hf, tmp_path / "pickled")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    shutil.copy(repository / "modeling_own.py", pickled)
    with Hub({_REPOSITORY: repository, _FILES: files, _GATED: files, _PICKLED: pickled}) as hub_server:
        thread = threading.Thread(target=hub_server.serve_forever, daemon=True)
        thread.start()
        yield hub_server
        hub_server.shutdown()
        thread.join()


def _environment(home: Path, url: str, **more: str) -> dict[str, str]:
    """The library reads its settings when it is imported."""
    variables = {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | variables | more


def _resolve(
    spec: str, home: Path, url: str, *, download: bool = True, allow_pickle: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    code = f"""
from harness.models import sizes, source
model = source.resolve({spec!r}, download={download}, allow_pickle={allow_pickle})
print(model.name, model.origin, sizes.n_params(model), model.path)
"""
    command = [sys.executable, "-c", code]
    environment = _environment(home, url, **more)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=environment)


def _told(result: subprocess.CompletedProcess[str]) -> str:
    """What a person reads."""
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("harness.errors.UserError: "), result.stderr
    return last.removeprefix("harness.errors.UserError: ")


def test_what_was_downloaded_is_a_model_to_name(server: Hub, tmp_path: Path, tiny_hf: Path) -> None:
    server.interruptions = 1
    home = tmp_path / "home"
    for _ in range(2):  # the library may go on by itself, or when it is called again
        fetched = _resolve(_REPOSITORY, home, server.url)
        if fetched.returncode == 0:
            break
        assert "the same command goes on" in _told(fetched)
    assert fetched.stdout.split()[:3] == ["tiny-llama", "hf", "426624"], fetched.stderr
    assert "%|" in fetched.stderr, "a progress bar"
    whole, again = [asked for name, asked in server.fetched if name == _LARGE]
    assert whole is None
    assert again is not None
    assert 0 < int(again.removeprefix("bytes=").partition("-")[0]) <= 12_000_000, "it went on where it had stopped"
    assert not {name for name, _ in server.fetched} & {"pytorch_model.bin", "modeling_own.py"}
    n_fetched = len(server.fetched)
    for more in ({"HF_HUB_OFFLINE": "1"}, {}):
        again = _resolve(_REPOSITORY, home, server.url, **more)
        assert again.stdout == fetched.stdout, again.stderr
    assert len(server.fetched) == n_fetched, "what is there is not asked for again"
    snapshot = home / "hub" / "models--someone--tiny-llama" / "snapshots" / _COMMIT
    for file in tiny_hf.iterdir():
        assert (snapshot / file.name).read_bytes() == file.read_bytes()
    assert (snapshot / _LARGE).stat().st_size == 24_000_000


def test_a_killed_download_goes_on_with_the_files_that_it_lacks(server: Hub, tmp_path: Path) -> None:
    server.wait_s = 0.2
    home = tmp_path / "home"
    code = f"from harness.models import source; source.resolve({_REPOSITORY!r}, download=True)"
    with subprocess.Popen([sys.executable, "-c", code], env=_environment(home, server.url)) as process:
        while not any(file.stat().st_size > 10_000_000 for file in home.rglob("*.incomplete")):
            assert process.poll() is None, "it must not be done before it is killed"
            time.sleep(0.05)
        process.kill()
    server.wait_s = 0.0
    there = {name for name, _ in server.fetched} - {_LARGE}
    assert "model.safetensors" in there
    server.fetched.clear()
    result = _resolve(_REPOSITORY, home, server.url)
    assert result.stdout.split()[:3] == ["tiny-llama", "hf", "426624"], result.stderr
    assert {name for name, _ in server.fetched} == {_LARGE}
    snapshot = home / "hub" / "models--someone--tiny-llama" / "snapshots" / _COMMIT
    assert (snapshot / _LARGE).stat().st_size == 24_000_000


@pytest.mark.parametrize(
    ("spec", "files"),
    [
        (f"{_FILES}/tiny-F16.gguf", {"tiny-F16.gguf"}),
        (f"{_FILES}:q4_k_m", {"tiny-Q4_K_M.gguf"}),
    ],
)
def test_one_file_of_several_is_fetched_alone(server: Hub, tmp_path: Path, spec: str, files: set[str]) -> None:
    result = _resolve(spec, tmp_path / "home", server.url)
    (file,) = files
    assert result.stdout.split()[:3] == [file.removesuffix(".gguf"), "gguf", "426624"], result.stderr
    assert {name for name, _ in server.fetched} == files


def test_all_parts_of_a_split_file_are_fetched(server: Hub, tmp_path: Path) -> None:
    _resolve(f"{_FILES}:Q8_0", tmp_path / "home", server.url)
    assert {name for name, _ in server.fetched} == {"tiny-Q8_0-00001-of-00002.gguf", "tiny-Q8_0-00002-of-00002.gguf"}


@pytest.mark.parametrize(
    ("spec", "more", "said"),
    [
        (_REPOSITORY, {"HF_HUB_OFFLINE": "1"}, "not in the Hugging Face cache, and HF_HUB_OFFLINE forbids to fetch it"),
        ("someone/none", {}, r"no such repository at http://127\.0\.0\.1:\d+/someone/none, or a private one, .*login"),
        (
            f"{_GATED}/tiny-F16.gguf",
            {},
            r"its owners grant access: ask for it at http://\S+/someone/gated, then",
        ),
        (_FILES, {}, r"holds 3 GGUF models: tiny-F16\.gguf, tiny-Q4_K_M\.gguf, tiny-Q8_0\.gguf; name one, as "),
        (f"{_FILES}:Q2_K", {}, r"no such model in someone/tiny-GGUF on the Hub; there is .*tiny-Q4_K_M\.gguf"),
        (f"{_FILES}/tiny-F32.gguf", {}, r"no such model in someone/tiny-GGUF on the Hub; there is tiny-F16\.gguf"),
    ],
)
def test_what_cannot_be_fetched_is_told_in_one_line(
    server: Hub, tmp_path: Path, spec: str, more: dict[str, str], said: str
) -> None:
    assert re.match(rf"{re.escape(spec)}: .*{said}", _told(_resolve(spec, tmp_path / "home", server.url, **more)))
    assert server.fetched == []


def test_a_disk_too_small_is_told_before_anything_is_fetched(server: Hub, tmp_path: Path) -> None:
    server.claimed_bytes = 10**17
    said = _told(_resolve(f"{_FILES}:Q8_0", tmp_path / "home", server.url))
    assert re.search(r"200000 TB are to be fetched, and \S+hub has [\d.]+ \wB free; HF_HOME names another", said)
    assert server.fetched == []


def test_a_connection_that_keeps_breaking_is_told(server: Hub, tmp_path: Path) -> None:
    server.interruptions = 99
    said = _told(_resolve(_REPOSITORY, tmp_path / "home", server.url))
    assert said.startswith("someone/tiny-llama: cannot be fetched from Hugging Face: peer closed")


def test_pickles_are_fetched_only_where_they_are_allowed(server: Hub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    said = _told(_resolve(_PICKLED, home, server.url))
    assert said.startswith("someone/pickled: its weights are in pickle files, which may run any code while they are re")
    assert said.endswith("tokenroof run --download --allow-unsafe-pickle takes that risk")
    assert server.fetched == []
    fetched = _resolve(_PICKLED, home, server.url, allow_pickle=True)
    assert fetched.stdout.split()[:3] == ["pickled", "hf", "426624"], fetched.stderr
    names = {name for name, _ in server.fetched}
    assert {"config.json", "pytorch_model.bin"} <= names
    assert "modeling_own.py" not in names
    n_fetched = len(server.fetched)
    for more in ({"HF_HUB_OFFLINE": "1"}, {}):
        again = _resolve(_PICKLED, home, server.url, allow_pickle=True, **more)
        assert again.stdout == fetched.stdout, again.stderr
    assert len(server.fetched) == n_fetched, "what is there is not asked for again"


def test_safetensors_go_before_pickles_that_are_allowed(server: Hub, tmp_path: Path) -> None:
    result = _resolve(_REPOSITORY, tmp_path / "home", server.url, allow_pickle=True)
    assert result.stdout.split()[:3] == ["tiny-llama", "hf", "426624"], result.stderr
    assert "pytorch_model.bin" not in {name for name, _ in server.fetched}


def test_nothing_is_fetched_unasked(server: Hub, tmp_path: Path) -> None:
    said = _told(_resolve(_REPOSITORY, tmp_path / "home", server.url, download=False))
    assert "tokenroof run --download, or hf download someone/tiny-llama, fetches it" in said
    assert server.fetched == []


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
        ("org/tiny-GGUF:F16", "tiny-llama-f16", "gguf"),
        ("org/tiny-GGUF:llama-F16", "tiny-llama-f16", "gguf"),  # a hyphen, as in UD-Q4_K_XL
    ],
)
def test_a_cached_repository_is_a_model_to_name(cache: Path, spec: str, name: str, origin: str) -> None:
    model = source.resolve(spec)
    assert (model.name, model.origin) == (name, origin)
    assert model.path is not None
    assert model.path.is_relative_to(cache)
    assert sizes.n_params(model) == 426_624


def test_a_commit_that_no_branch_names_is_found_too(cache: Path) -> None:
    (cache / "models--org--tiny" / "refs" / "main").unlink()
    assert source.resolve("org/tiny").name == "tiny"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "org/tinny",
            r"not in the Hugging Face cache, .*hub; there is org/tiny, org/tiny-GGUF; .*download org/tinny",
        ),
        (
            "org/tiny-GGUF/q4.gguf",
            r"no such file .* cache; there is tiny-llama-f16\.gguf; .*hf download org/tiny-GGUF",
        ),
    ],
)
def test_what_is_not_cached_is_told_with_the_way_to_fetch_it(cache: Path, spec: str, said: str) -> None:
    assert cache.is_dir()
    with pytest.raises(UserError, match=said):
        source.resolve(spec)


def test_half_a_repository_is_told(cache: Path) -> None:
    snapshot = cache / "models--org--tiny" / "snapshots" / _COMMIT
    (snapshot / "model.safetensors").rename(snapshot / "model-00001-of-00002.safetensors")
    with pytest.raises(UserError, match=r"without model-00002-of-00002\.safetensors; .*hf download org/tiny, fetches"):
        source.resolve("org/tiny")


_words = st.from_regex(r"\w[\w.-]{0,8}", fullmatch=True)


@given(_words, _words, _words)
def test_the_parts_of_an_id_are_told_apart(owner: str, name: str, word: str) -> None:
    repository = f"{owner}/{name}"
    assert hub.wanted(repository) == hub.Wanted(repository, repository)
    file = hub.Wanted(f"{repository}/{word}.gguf", repository, f"{word}.gguf")
    assert hub.wanted(file.spec) == file
    weights = hub.Wanted(f"{repository}:{word}", repository, weight_format=word)
    assert hub.wanted(weights.spec) == weights


@given(st.text())
def test_any_text_is_an_id_or_is_not(text: str) -> None:
    if hub.wanted(text):
        assert text.count("/") >= 1
        assert not text.startswith(("/", ".", "~"))
