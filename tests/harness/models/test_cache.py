"""The cache directory: whole artifacts only, one writer at a time."""

import subprocess
import sys
from pathlib import Path

import filelock
import platformdirs
import pytest

from harness.models import cache


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path))


def _write(name: str, n_bytes: int) -> Path:
    path = cache.artifact_path(name)
    with cache.locked(path), cache.written_whole(path) as partial:
        partial.write_bytes(bytes(n_bytes))
    return path


def _write_half(partial: Path) -> None:
    partial.write_bytes(b"half")
    raise OSError("disk full")


def test_the_users_own_directory_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENROOF_CACHE")
    assert cache.directory() == platformdirs.user_cache_path("tokenroof", appauthor=False)


def test_an_artifact_is_listed_and_freed() -> None:
    path = _write("model.gguf", 1000)
    assert [(artifact.path, artifact.n_bytes) for artifact in cache.list_cached()] == [(path, 1000)]
    assert cache.clean() == 1000
    assert cache.list_cached() == []


def test_nothing_appears_when_writing_fails() -> None:
    path = cache.artifact_path("model.gguf")
    with pytest.raises(OSError, match="disk full"), cache.written_whole(path) as partial:
        _write_half(partial)
    assert list(path.parent.iterdir()) == []


def test_what_a_killed_writer_left_is_no_artifact_and_is_freed() -> None:
    path = cache.artifact_path("model.gguf")
    # os._exit runs no clean-up, as a kill does not.
    script = (
        "import os, sys; from pathlib import Path; from harness.models import cache\n"
        "path = Path(sys.argv[1])\n"
        "with cache.locked(path), cache.written_whole(path) as partial:\n"
        "    partial.write_bytes(bytes(500)); os._exit(1)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == 1
    assert cache.list_cached() == []
    assert cache.clean() == 500


def test_a_writer_begins_anew_after_a_killed_one() -> None:
    path = cache.artifact_path("model")
    left = path.with_name("model.partial")
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"half")
    with cache.locked(path), cache.written_whole(path) as partial:
        partial.mkdir()
        (partial / "whole").write_bytes(b"whole")
    assert [file.name for file in path.iterdir()] == ["whole"]


def test_clean_leaves_what_another_run_is_writing() -> None:
    path = cache.artifact_path("busy")
    with cache.locked(path), cache.written_whole(path) as partial:
        partial.write_bytes(bytes(10))
        assert cache.clean() == 0
    assert path.exists()


def test_a_second_writer_waits() -> None:
    path = cache.artifact_path("busy")
    with cache.locked(path), pytest.raises(filelock.Timeout):
        filelock.FileLock(path.with_name("busy.lock"), timeout=0).acquire()
