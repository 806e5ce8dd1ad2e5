"""What each installed engine is and which devices it can really use, asked in a process of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from backends.base import Accelerator, EngineInfo
from harness.process import Worker, WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SILENCE_S = 120  # the first import of a large library from a slow disk


def describe(backends: Iterable[str]) -> dict[str, EngineInfo | str]:
    """Ask the engines, side by side.

    Returns:
        backend -> its description, or in one line why it cannot be loaded.
    """
    names = list(backends)
    with ThreadPoolExecutor(max_workers=len(names) or 1) as pool:
        return dict(zip(names, pool.map(_describe, names), strict=True))


def _describe(backend: str) -> EngineInfo | str:
    try:
        with Worker({"task": "describe", "backend": backend}) as worker:
            for event in worker.events(_SILENCE_S):
                if event["event"] == "failed":
                    return str(event["error"])
                info = event["info"]
                accelerators = tuple(Accelerator(**accelerator) for accelerator in info["accelerators"])
                types = info["model_types"]
                return EngineInfo(info["version"], info["build"], accelerators, None if types is None else tuple(types))
    except WorkerDiedError as error:
        return error.reason
    return "it said nothing"
