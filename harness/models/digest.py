"""The SHA-256 of what model files hold: all bytes are read once, and the answer is kept until a file changes."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import UserError
from harness.models import cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

_VERSION = 1  # of what is hashed
_READ_BYTES = 2**20
_THREADS = min(4, os.cpu_count() or 1)  # hashlib lets go of the interpreter; a disk gains nothing from more

_known: dict[str, str] = {}
"""By stamp; the only memory where the cache cannot be written."""


class Span(NamedTuple):
    """Bytes of a file, and what they are called."""

    name: str
    path: Path
    offset: int
    n_bytes: int


def digest(files: Iterable[Path], spans: Callable[[], Iterable[Span]], progress: Callable[[int, int], None]) -> str:
    """The hash of names and bytes: equal however these are spread over files.

    Args:
        files: those that hold the bytes.
        spans: tells where, by the files alone; called where the answer is not known yet.
        progress: called with `(done_bytes, total_bytes)`.

    Returns:
        64 hexadecimal digits.

    Raises:
        UserError: a file cannot be read, or changes meanwhile.
    """
    files = sorted(files)
    stamp = _stamp(files)
    found = _recalled(files, stamp)
    if found is None:
        found = _read(sorted(spans(), key=lambda span: (span.path, span.offset)), progress)
        if _stamp(files) != stamp:
            raise UserError(f"{files[0].parent}: its files changed while they were read; run again when it is complete")
        _remember(files, stamp, found)
    return found


def expected_digest(files: Iterable[Path]) -> str:
    """The same where it is known, without reading the files; else what no content has as its hash.

    Raises:
        UserError: a file cannot be read.
    """
    files = sorted(files)
    stamp = _stamp(files)
    return _recalled(files, stamp) or stamp


def _read(spans: Sequence[Span], progress: Callable[[int, int], None]) -> str:
    """In the order of the files, several at once."""
    total = sum(span.n_bytes for span in spans)
    done, found = 0, []
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for span, of_bytes in zip(spans, pool.map(_sha256, spans), strict=True):
            found.append([span.name, of_bytes])
            done += span.n_bytes
            progress(done, total)
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C waits for what is being read, not for all
    return _sha256_of(sorted(found))


def _sha256(span: Span) -> str:
    found, left = hashlib.sha256(), span.n_bytes
    buffer = memoryview(bytearray(min(_READ_BYTES, left)))
    with _reading_errors(), span.path.open("rb", buffering=0) as file:
        file.seek(span.offset)
        while left:
            n_read = file.readinto(buffer[:left])
            if not n_read:
                raise UserError(f"{span.path}: ended while it was read; run again when the model is complete")
            found.update(buffer[:n_read])
            left -= n_read
    return found.hexdigest()


def _stamp(files: Sequence[Path]) -> str:
    """Another one whenever a file is replaced or written to."""
    with _reading_errors():
        states = [[state.st_size, state.st_mtime_ns, state.st_ino] for state in (file.stat() for file in files)]
        return _sha256_of([_VERSION, [str(file.resolve()) for file in files], states])


def _recalled(files: Sequence[Path], stamp: str) -> str | None:
    """None also where the note is damaged, or of other contents: the files are read again."""
    if stamp not in _known:
        with suppress(OSError, ValueError):
            found, check = _note(files).read_text(encoding="ascii").split()
            if check == _check(stamp, found):
                _known[stamp] = found
    return _known.get(stamp)


def _remember(files: Sequence[Path], stamp: str, found: str) -> None:
    _known[stamp] = found
    note = _note(files)
    with suppress(OSError), cache.locked(note), cache.written_whole(note) as partial:
        partial.write_text(f"{found} {_check(stamp, found)}\n", encoding="ascii")


def _note(files: Sequence[Path]) -> Path:
    """One for these files, whatever becomes of them."""
    return cache.directory() / "digests" / _sha256_of([str(file.resolve()) for file in files])


def _check(stamp: str, found: str) -> str:
    """That the one belongs to the other, and is undamaged."""
    return _sha256_of([stamp, found])


def _sha256_of(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


@contextmanager
def _reading_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read: {error.strerror}") from error
