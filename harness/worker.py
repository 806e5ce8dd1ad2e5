"""The child process: loads one model in one engine, runs its cases, and tells the parent what it measured.

One JSON document comes in on standard input, JSON lines go out on standard output. An engine that prints would spoil
them, so the real standard output is set aside and file descriptor 1 leads to standard error.

    {"task": "describe", "backend": NAME}
    {"task": "bandwidth", "backend": NAME or null, "device": ID, "n_threads": 2, "budget_s": 10}
    {"task": "run", "backend": NAME, "request": {LoadRequest}, "seed": 1, "window": null,
     "cases": [{"case": {Case}, "repetitions": 3}, …]}
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from backends.base import BackendError, LoadRequest
from backends.registry import BACKENDS
from harness import measure, probe
from harness.machine import nvml
from harness.machine.bandwidth import in_worker
from harness.machine.bandwidth.document import to_document
from harness.machine.conditions import energy
from harness.machine.conditions.window import Window
from harness.machine.memory import HostPeak
from harness.selfcheck import check_decode
from harness.workload import Case, sha256, token_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import Session

T = TypeVar("T")


def main() -> None:
    """Read one job, run it, say "done"."""
    events = _claim_stdout()
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    tell = Teller(events)
    if job["task"] == "describe":
        _describe(job, tell)
    elif job["task"] == "bandwidth":
        _bandwidth(job, tell)
    else:
        _run(job, tell)
    tell("done")


class Teller:
    """Writes one event a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: str, **content: object) -> None:
        """Send an event with its content, which must be JSON-serialisable."""
        self._stream.write(json.dumps({"event": event, **content}) + "\n")
        self._stream.flush()


def _claim_stdout() -> TextIO:
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return events


def _exit_with_parent() -> None:
    """The parent holds the other end of standard input open as long as it lives."""
    while sys.stdin.readline():
        pass
    os._exit(1)


def _describe(job: dict[str, Any], tell: Teller) -> None:
    try:
        info = BACKENDS[job["backend"]].import_module().describe()
    except Exception as error:  # noqa: BLE001 an engine may fail to import in any way; the parent must hear why
        tell("failed", error=_one_line(error))
        return
    tell("described", info=dataclasses.asdict(info))


def _bandwidth(job: dict[str, Any], tell: Teller) -> None:
    arguments = {name: value for name, value in job.items() if name != "task"}

    def progress(what: str, share: float) -> None:
        tell("progress", what=what, share=share)

    measured = _guard(lambda: in_worker.measure(**arguments, progress=progress), tell, "failed")
    if measured is not None:
        tell("measured", measured=to_document(measured))


def _run(job: dict[str, Any], tell: Teller) -> None:
    request = LoadRequest(**{**job["request"], "artifact": Path(job["request"]["artifact"])})
    tell("loading")
    started = time.perf_counter()
    session = _guard(lambda: BACKENDS[job["backend"]].import_module().load(request), tell, "failed")
    if session is None:
        return
    facts = session.facts()
    tell("loaded", load_s=time.perf_counter() - started, facts=dataclasses.asdict(facts))
    scored = _guard(lambda: probe.score(session, window=job["window"]), tell, "failed")
    if scored is None:
        return
    tell("probe", **dataclasses.asdict(scored))
    with energy.meter(facts.device, facts.device_name) as meter:
        for index, item in enumerate(job["cases"]):
            _run_case(session, index, item, job["seed"], tell, Window(meter))
    session.close()


def _run_case(session: Session, index: int, item: dict[str, Any], seed: int, tell: Teller, window: Window) -> None:
    case = Case(**item["case"])
    host = HostPeak()
    tell("case", index=index)

    def run() -> None:
        tokens = token_stream(case.context_tokens, case.batch, session.vocab_size, seed)
        tokens_sha256 = sha256(tokens)
        session.allocate(case.context_tokens, case.batch)
        measure.fill(session, case, tokens)
        warm_up = measure.repeat(session, case, tokens)  # the measured shape, untimed
        check_decode(session, case, tokens, warm_up.ids)
        tell("warm", index=index)
        for repetition in range(1, item["repetitions"] + 1):
            measure.fill(session, case, tokens)
            sample = measure.repeat(session, case, tokens, around=window)
            tell(
                "repetition",
                index=index,
                repetition=repetition,
                started_at=sample.started_at,
                ttft_s=None if sample.ttft_ns is None else sample.ttft_ns / 1e9,
                itl_s=(sample.step_ns / 1e9).tolist(),
                ids=sample.ids.tolist(),
                tokens_sha256=tokens_sha256,
                argmax_sha256=sha256(sample.ids),
                peak_host_bytes=host.bytes(),
                host_peak_since=host.since,
                driver_memory=nvml.process_bytes(),
                facts=dataclasses.asdict(session.facts()),
                memory=dataclasses.asdict(session.memory()),
                counted=window.counted,
            )

    _guard(run, tell, "case_failed", index=index)


def _guard(call: Callable[[], T], tell: Teller, event: str, **where: object) -> T | None:
    """Run `call`; whatever an engine throws becomes an event, since it must cost one case and not the run."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        if not isinstance(error, BackendError):
            traceback.print_exc()
        tell(event, **where, error=_one_line(error))
        return None


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, BackendError) and text:
        return text
    if isinstance(error, MemoryError):
        return "out of host memory; take a smaller model, a shorter context or a smaller batch"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


if __name__ == "__main__":
    main()
