"""A worker process as its parent sees it: one job in, events out, and a plain reason when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Self

import psutil

from results.amounts import size

if TYPE_CHECKING:
    from collections.abc import Iterator

Event = dict[str, Any]

_POLL_S = 0.2  # on Windows, Ctrl-C reaches the main thread only between two waits
_LAST_WORDS = 40  # lines of the worker's stderr that are kept
_CRASHES = {"SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE"}
_WINDOWS_CRASHES = {0xC0000005: "access violation", 0xC000001D: "illegal instruction", 0xC0000409: "abort"}


class WorkerDiedError(Exception):
    """The process ended, or had to be ended, before its work was done.

    Attributes:
        reason: one line for people.
        crashed: it died of its own fault (a segmentation fault, an abort), not of a kill or a hang.
    """

    def __init__(self, reason: str, *, crashed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.crashed = crashed


class Worker:
    """A child process that runs one job. Leaving the `with` block ends it, whatever it is doing.

    The pipe to its standard input stays open while the parent lives: when the parent is killed, the worker reads
    the end of the pipe and exits (see harness.worker).
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._events: queue.Queue[str | None] = queue.Queue()
        self._last_words: list[str] = []

    def __enter__(self) -> Self:
        # -P: a folder called "results" in the user's working directory must not shadow our package.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | _ENVIRONMENT,
            # Its own group: Ctrl-C reaches the parent alone, which then ends the worker in good order.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # Windows
        )
        self._readers = tuple(
            threading.Thread(target=read, daemon=True) for read in (self._read_events, self._read_words)
        )
        for reader in self._readers:
            reader.start()
        with contextlib.suppress(BrokenPipeError):  # it died at once: events() will tell why
            _pipe(self._process.stdin).write(json.dumps(self._job).encode() + b"\n")
            _pipe(self._process.stdin).flush()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def events(self, silence_s: float) -> Iterator[Event]:
        """Yield its events until it is done.

        Args:
            silence_s: how long it may say nothing before it is taken for hung and killed.

        Raises:
            WorkerDiedError: it crashed, was killed, or hung.
        """
        while True:
            line = self._next_line(silence_s)
            if line is None:
                raise self._obituary()
            event: Event = json.loads(line)
            if event["event"] == "done":
                return
            yield event

    def _next_line(self, silence_s: float) -> str | None:
        deadline = time.monotonic() + silence_s
        while True:
            try:
                return self._events.get(timeout=_POLL_S)
            except queue.Empty:
                if time.monotonic() < deadline:
                    continue
                self.kill()
                raise WorkerDiedError(
                    f"no sign of life for {silence_s:.0f} s, so it was ended; give it longer with --timeout"
                ) from None

    def kill(self) -> None:
        """End the process and all it started, and wait for them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            for child in process.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=5)

    def _read_events(self) -> None:
        for line in _pipe(self._process.stdout):
            self._events.put(line.decode("utf-8", "replace"))
        self._events.put(None)

    def _read_words(self) -> None:
        for line in _pipe(self._process.stderr):
            if text := line.decode("utf-8", "replace").strip():
                self._last_words.append(text)
                del self._last_words[:-_LAST_WORDS]

    def _obituary(self) -> WorkerDiedError:
        code = self._process.wait()
        self._readers[1].join(timeout=5)
        said = f" (its last words: {self._last_words[-1][:300]})" if self._last_words else ""
        if code < 0:
            name = signal.Signals(-code).name
            if name == "SIGKILL":
                free = psutil.virtual_memory().available
                return WorkerDiedError(
                    f"killed (SIGKILL) by hand, or by the system for want of memory ({size(free)} are free "
                    "now); if so, try a smaller model, a shorter context or a smaller batch"
                )
            return WorkerDiedError(f"the engine crashed with {name}{said}", crashed=name in _CRASHES)
        if crash := _WINDOWS_CRASHES.get(code & 0xFFFFFFFF):
            return WorkerDiedError(f"the engine crashed: {crash}{said}", crashed=True)
        return WorkerDiedError(f"the worker ended early with exit code {code}{said}", crashed=True)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the worker was started without this pipe")
    return stream


_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # a benchmark never downloads
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONUTF8": "1",
}
