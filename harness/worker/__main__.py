"""`python -m harness.worker`: reads one job, runs it, and says "done"."""

from __future__ import annotations

import json
import os
import sys
import threading

from backends.registry import BACKENDS
from harness.worker import run, tasks
from harness.worker.events import Teller, claim_stdout

_TASKS = {
    "describe": tasks.describe,
    "bandwidth": tasks.bandwidth,
    "hold": tasks.hold,
    "quality": tasks.quality,
    "tokenise": tasks.tokenise,
    "run": run.run,
    "quantise": tasks.quantise,
    "synthesise": tasks.synthesise,
    "unpickle": tasks.unpickle,
    "serve": tasks.serve,
}


def main() -> None:
    """Do the job that the parent writes."""
    tell = Teller(claim_stdout())
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _do_without(job.get("backend"))
    _TASKS[job["task"]](job, tell)
    tell("done")


def _do_without(backend: str | None) -> None:
    """Have libraries that this engine does not need looked for in vain, as if they were not installed."""
    for name in BACKENDS[backend].needless if backend in BACKENDS else ():
        sys.modules[name] = None  # type: ignore[assignment]


def _exit_with_parent() -> None:
    """The parent holds the other end of standard input open as long as it lives."""
    while sys.stdin.readline():
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
