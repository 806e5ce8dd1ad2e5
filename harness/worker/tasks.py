"""The jobs that ask an engine for one thing; that of measuring is in `run`."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.base import OutOfMemoryError
from backends.registry import BACKENDS
from harness.growth import watched
from harness.machine.bandwidth import in_worker as bandwidth_in_worker
from harness.machine.bandwidth.document import to_document
from harness.quality.answers import answers, compare
from harness.quantise import in_worker as quantise_in_worker
from harness.tiers import lend
from harness.worker.events import guard, one_line
from harness.worker.loading import load
from harness.workload import Case

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import Logits
    from harness.worker.events import Teller


def describe(job: dict[str, Any], tell: Teller) -> None:
    """What is installed."""
    try:
        backend = BACKENDS[job["backend"]]
        # Endpoints are for the engine that places layers; the others have nothing to ask there.
        more = {"rpc": tuple(job["rpc"])} if backend.places_layers else {}
        info = backend.import_module().describe(**more)
    except Exception as error:  # noqa: BLE001 an engine may fail to import in any way; the parent must hear why
        tell("failed", error=one_line(error))
        return
    tell("described", info=dataclasses.asdict(info))


def bandwidth(job: dict[str, Any], tell: Teller) -> None:
    """How fast a memory is read."""

    def progress(what: str, share: float) -> None:
        tell("progress", what=what, share=share)

    measured = guard(lambda: bandwidth_in_worker.measure(**_arguments(job), progress=progress), tell, "failed")
    if measured is not None:
        tell("measured", measured=to_document(measured))


def quantise(job: dict[str, Any], tell: Teller) -> None:
    """Write a model in another weight format."""
    guard(lambda: quantise_in_worker.quantise(**_arguments(job), grown=_grown(tell)), tell, "failed")


def synthesise(job: dict[str, Any], tell: Teller) -> None:
    """Write a preset in another weight format."""
    guard(lambda: quantise_in_worker.synthesise(**_arguments(job), grown=_grown(tell)), tell, "failed")


def unpickle(job: dict[str, Any], tell: Teller) -> None:
    """Write pickled weights as safetensors."""
    reader = importlib.import_module(f"{BACKENDS[job['backend']].module}.unpickle")
    files, target = [Path(file) for file in job["files"]], Path(job["target"])

    def write() -> None:
        with watched(target, _grown(tell)):
            reader.unpickle(files, target)

    guard(write, tell, "failed")


def hold(job: dict[str, Any], tell: Teller) -> None:
    """Whether the model and a case's KV cache fit where they are asked to be; nothing is timed."""
    case = Case(**job["case"])

    def held() -> str:
        try:
            load(job, "request").allocate(case.context_tokens, case.batch)
        except OutOfMemoryError:
            return "too_large"
        return "held"

    if outcome := guard(held, tell, "failed"):
        tell(outcome)


def quality(job: dict[str, Any], tell: Teller) -> None:
    """How far the answers moved; one model after the other: two at once may be more than the memory holds."""

    def answer(which: str) -> Logits:
        tell("loading")
        session = load(job, which)
        answered = answers(session)
        session.close()
        return answered

    found = guard(lambda: compare(answer("unquantised"), answer("quantised")), tell, "failed")
    if found is not None:
        tell("quality", **dataclasses.asdict(found))


def tokenise(job: dict[str, Any], tell: Teller) -> None:
    """The ids of a text."""
    tokeniser = importlib.import_module(f"{BACKENDS[job['backend']].module}.tokenise")
    ids = guard(lambda: tokeniser.tokenise(Path(job["artifact"]), job["text"]), tell, "failed")
    if ids is not None:
        tell("tokens", ids=ids)


def serve(job: dict[str, Any], tell: Teller) -> None:
    """Lend this machine's memory, until the parent ends the worker."""
    guard(lambda: lend.serve(job["endpoint"], job["n_threads"], job["device"], tell), tell, "failed")


def _grown(tell: Teller) -> Callable[[int], None]:
    """Tells how many bytes are written."""
    return lambda n_bytes: tell("progress", done=n_bytes)


def _arguments(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name != "task"}
