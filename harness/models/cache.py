"""Where artifacts lie: one directory a user, safe for two runs at once and for interrupted ones."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import platformdirs

from harness.errors import UserError
from results.amounts import size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_PARTIAL = ".partial"
_LOCK = ".lock"
_IN_USE = ".in-use"
_QUALITY = ".quality.json"


@dataclass(frozen=True)
class CachedArtifact:
    """One synthesised directory or exported file."""

    path: Path
    n_bytes: int


def directory() -> Path:
    """`TOKENROOF_CACHE` where that is set, else the user's cache directory; may not exist yet."""
    chosen = os.environ.get("TOKENROOF_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("tokenroof", appauthor=False))


def artifact_path(file_name: str) -> Path:
    """Where the artifact of this file name lies, or will lie."""
    return directory() / "models" / file_name


def check_room(needed: int) -> None:
    """The cache's disk must hold that many more bytes.

    Raises:
        UserError: it cannot.
    """
    place = directory()
    existing = next((parent for parent in (place, *place.parents) if parent.exists()), Path())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise UserError(
            f"the model files need {size(needed)} of disk, {place} has {size(free)} free; "
            "`tokenroof models --clean` frees older models, TOKENROOF_CACHE names another disk"
        )


def list_cached() -> list[CachedArtifact]:
    """The finished artifacts, by name."""
    beside = (_PARTIAL, _LOCK, _QUALITY)
    return [CachedArtifact(path, size_of(path)) for path in _contents() if not path.name.endswith(beside)]


def quality_note(artifact: Path, computed_by: str) -> Path:
    """The file beside a quantised artifact that says what its engine's answers lose by it; may not exist.

    Args:
        artifact: need not exist either.
        computed_by: what else the answers follow from, as the device.
    """
    key = hashlib.sha256(computed_by.encode()).hexdigest()[:8]
    return artifact.with_name(f"{artifact.name}-{key}{_QUALITY}")


@contextmanager
def in_use() -> Iterator[None]:
    """Keep `clean` away from artifacts while a run reads them; the mark of a killed run counts for nothing."""
    directory().mkdir(parents=True, exist_ok=True)
    mark = directory() / f"{uuid.uuid4().hex}{_IN_USE}"
    try:
        with filelock.FileLock(mark):
            yield
    finally:
        mark.unlink(missing_ok=True)


def clean(only: Collection[Path] | None = None) -> int:
    """Delete artifacts, finished or not, but those that another run is writing now.

    Args:
        only: the artifacts to delete; None: every one.

    Returns:
        Bytes freed.

    Raises:
        UserError: a run is reading them.
    """
    for mark in directory().glob(f"*{_IN_USE}"):
        try:
            with filelock.FileLock(mark, timeout=0):
                pass
        except filelock.Timeout:
            raise UserError("a run is using the model files; clean when it has ended") from None
        mark.unlink(missing_ok=True)
    freed = 0
    for path in _contents():
        if path.name.endswith(_LOCK) or (only is not None and path not in only):
            continue
        try:
            with _lock(path.with_name(path.name.removesuffix(_PARTIAL)), timeout=0):
                size = size_of(path)
                _remove(path)
                freed += size
        except filelock.Timeout:
            continue
    return freed


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the right to write `path`; waits for another run that is writing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock(path, timeout=-1):
        yield


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary sibling to write to, which becomes `path` only if nothing goes wrong.

    What a killed writer left under the temporary name is removed first.
    """
    partial = path.with_name(path.name + _PARTIAL)
    partial.parent.mkdir(parents=True, exist_ok=True)
    _remove(partial)
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        _remove(partial)
        raise


def _contents() -> list[Path]:
    models = directory() / "models"
    return sorted(models.iterdir()) if models.is_dir() else []


def _lock(path: Path, timeout: float) -> filelock.BaseFileLock:
    return filelock.FileLock(path.with_name(path.name + _LOCK), timeout=timeout)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a directory; 0 where there is nothing."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
