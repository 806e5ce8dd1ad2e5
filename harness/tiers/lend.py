"""The worker's side of `tokenroof serve-tier`: this machine's memory and processor, for a run on another machine."""

from __future__ import annotations

import importlib
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from backends.base import BackendError
from backends.registry import BACKENDS
from harness.tiers.endpoints import answers

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 0.05


def serve(endpoint: str, n_threads: int, device: str, tell: Callable[..., None]) -> None:
    """Serve until the process is ended; tell "serving" with the devices as soon as somebody could connect.

    Raises:
        BackendError: the address is taken or wrong, there is no such device, or this build cannot serve.
    """
    engine = importlib.import_module(f"{BACKENDS['llama.cpp'].module}.serve")
    if answers(endpoint):
        raise BackendError(f"cannot listen at {endpoint}: somebody does already")
    devices = [asdict(each) for each in engine.served(device)]  # here: two threads must not load the engine at once
    threading.Thread(target=_tell, args=(endpoint, devices, tell), daemon=True).start()
    engine.serve(endpoint, n_threads, device)


def _tell(endpoint: str, devices: list[dict[str, Any]], tell: Callable[..., None]) -> None:
    while not answers(endpoint):
        time.sleep(_LOOK_S)
    tell("serving", devices=devices)
