"""What each installed engine is and which devices it can really use, asked in a process of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from backends.base import Accelerator, EngineInfo
from harness.process import Worker, WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SILENCE_S = 120  # the first import of a large library from a slow disk


def describe(backends: Iterable[str], rpc: tuple[str, ...] = ()) -> dict[str, EngineInfo | str]:
    """Ask the engines, side by side.

    Args:
        backends: their names.
        rpc: endpoints whose devices an engine that places layers is to list too.

    Returns:
        backend -> its description, or in one line why it cannot be loaded.
    """
    names = list(backends)
    with ThreadPoolExecutor(max_workers=len(names) or 1) as pool:
        return dict(zip(names, pool.map(partial(_describe, rpc=rpc), names), strict=True))


def _describe(backend: str, rpc: tuple[str, ...]) -> EngineInfo | str:
    try:
        with Worker({"task": "describe", "backend": backend, "rpc": rpc}) as worker:
            for event in worker.events(_SILENCE_S):
                if event["event"] == "failed":
                    return str(event["error"])
                # JSON has no tuples.
                told: dict[str, Any] = {
                    name: tuple(value) if isinstance(value, list) else value for name, value in event["info"].items()
                }
                accelerators = tuple(Accelerator(**accelerator) for accelerator in told["accelerators"])
                return EngineInfo(**told | {"accelerators": accelerators})
    except WorkerDiedError as error:
        return error.reason
    return "it said nothing"
