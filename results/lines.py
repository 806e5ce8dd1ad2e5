"""Lines that several processes append to one file, and that a power cut may tear in the middle."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from filelock import FileLock, Timeout

from results.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO
    from pathlib import Path

LOCK_WAIT_S = 60


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Hold `output` and its side files against every other process.

    Raises:
        ResultsError: there is no such folder, another process keeps the lock, or the system refused a read or
            a write inside the block.
    """
    if not output.parent.is_dir():
        raise ResultsError(f"{output}: there is no folder {output.parent}; make it, or write elsewhere")
    try:
        with FileLock(f"{output}.lock", timeout=LOCK_WAIT_S, poll_interval=0.01):
            yield
    except Timeout:
        raise ResultsError(
            f"{output}: another process has kept {output}.lock for {LOCK_WAIT_S} s; end it or write elsewhere"
        ) from None
    except OSError as error:
        raise ResultsError(
            f"{output}: {error.strerror or error}; what it held before is intact; mend that, or write elsewhere"
        ) from error


def append(file: FileIO, data: bytes) -> None:
    """Add `data` and force it to disk, or leave the file as it was and raise OSError.

    `file` is unbuffered and in append mode, so that the whole of `data` is one write.
    """
    size = file.seek(0, os.SEEK_END)
    try:
        written = file.write(data)
        while written < len(data):  # a full disk takes a part first and only then tells why
            written += file.write(data[written:])
        os.fsync(file.fileno())
    except OSError:
        file.truncate(size)
        raise


def tail(file: BinaryIO | FileIO) -> bytes:
    """The bytes after the file's last newline: none where the last line is whole."""
    end = file.seek(0, os.SEEK_END)
    length = 4096
    while True:
        start = max(0, end - length)
        file.seek(start)
        block = file.read(end - start)
        if start == 0 or b"\n" in block:
            return block.rpartition(b"\n")[2]
        length *= 2


def mend(file: FileIO, is_whole: Callable[[bytes], bool]) -> None:
    """Cut off a last line that lost its end; where only the newline is missing, add it."""
    last = tail(file)
    if last and is_whole(last):
        append(file, b"\n")
    elif last:
        file.truncate(file.seek(0, os.SEEK_END) - len(last))
