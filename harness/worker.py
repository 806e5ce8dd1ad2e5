"""The child process: loads one model in one engine, runs its cases, and tells the parent what it measured.

One JSON document comes in on standard input, JSON lines go out on standard output. An engine that prints would spoil
them, so the real standard output is set aside and file descriptor 1 leads to standard error.

    {"task": "describe", "backend": NAME, "rpc": ["HOST:PORT", …]}
    {"task": "bandwidth", "backend": NAME or null, "device": ID, "n_threads": 2, "budget_s": 10}
    {"task": "hold", "backend": NAME, "request": {LoadRequest}, "case": {Case}}
    {"task": "quality", "backend": NAME, "unquantised": {LoadRequest}, "quantised": {LoadRequest}}
    {"task": "tokenise", "backend": NAME, "artifact": PATH, "text": TEXT}
    {"task": "run", "backend": NAME, "request": {LoadRequest}, "seed": 1, "prompt_ids": [ID, …] or null,
     "window": null, "is_mixture": false, "demand": {Demand} or null, "allow_partial": false,
     "cases": [{"case": {Case}, "repetitions": 3}, …]}
    {"task": "quantise", "backend": NAME, "source": PATH, "target": PATH, "weight_format": "q4_k_m", "n_threads": 2}
    {"task": "serve", "endpoint": "HOST:PORT", "n_threads": 1, "device": "auto"}
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import numpy as np

from backends.base import BackendError, LoadRequest, OutOfMemoryError
from backends.registry import BACKENDS
from harness import experts, measure, probe
from harness.machine import nvml
from harness.machine.bandwidth import in_worker
from harness.machine.bandwidth.document import to_document
from harness.machine.conditions import energy
from harness.machine.conditions.window import Window
from harness.machine.memory import HostPeak
from harness.quality.answers import answers, compare
from harness.quantise.in_worker import quantise
from harness.selfcheck import check_answers, expected_logits
from harness.tiers import lend
from harness.tiers.proof import Demand, unkept
from harness.workload import Case, sha256, text_stream, token_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backends.base import Logits, Session

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
    elif job["task"] == "serve":
        _guard(lambda: lend.serve(job["endpoint"], job["n_threads"], job["device"], tell), tell, "failed")
    elif job["task"] == "hold":
        _hold(job, tell)
    elif job["task"] == "quality":
        _quality(job, tell)
    elif job["task"] == "quantise":
        _quantise(job, tell)
    elif job["task"] == "tokenise":
        _tokenise(job, tell)
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
        backend = BACKENDS[job["backend"]]
        # Endpoints are for the engine that places layers; the others have nothing to ask there.
        more = {"rpc": tuple(job["rpc"])} if backend.places_layers else {}
        info = backend.import_module().describe(**more)
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


def _quantise(job: dict[str, Any], tell: Teller) -> None:
    arguments = {name: value for name, value in job.items() if name != "task"}

    def grown(n_bytes: int) -> None:
        tell("progress", done=n_bytes)

    _guard(lambda: quantise(**arguments, grown=grown), tell, "failed")


def _hold(job: dict[str, Any], tell: Teller) -> None:
    """Whether the model and a case's KV cache fit where they are asked to be; nothing is timed."""
    case = Case(**job["case"])

    def hold() -> str:
        try:
            _load(job, "request").allocate(case.context_tokens, case.batch)
        except OutOfMemoryError:
            return "too_large"
        return "held"

    if outcome := _guard(hold, tell, "failed"):
        tell(outcome)


def _quality(job: dict[str, Any], tell: Teller) -> None:
    """One model after the other: two at once may be more than the memory holds."""

    def answer(which: str) -> Logits:
        tell("loading")
        session = _load(job, which)
        answered = answers(session)
        session.close()
        return answered

    found = _guard(lambda: compare(answer("unquantised"), answer("quantised")), tell, "failed")
    if found is not None:
        tell("quality", **dataclasses.asdict(found))


def _tokenise(job: dict[str, Any], tell: Teller) -> None:
    tokeniser = importlib.import_module(f"{BACKENDS[job['backend']].module}.tokenise")
    ids = _guard(lambda: tokeniser.tokenise(Path(job["artifact"]), job["text"]), tell, "failed")
    if ids is not None:
        tell("tokens", ids=ids)


def _run(job: dict[str, Any], tell: Teller) -> None:
    tell("loading")
    started = time.perf_counter()
    session = _guard(lambda: _load(job, "request"), tell, "failed")
    if session is None:
        return
    load_s = time.perf_counter() - started
    facts = _guard(lambda: _facts(session, job), tell, "failed")
    if facts is None:
        return
    held = session.held()
    tell("loaded", load_s=load_s, facts=facts, held=held and [dataclasses.asdict(each) for each in held])
    scored = _guard(lambda: probe.score(session, window=job["window"]), tell, "failed")
    if scored is None:
        return
    tell("probe", **dataclasses.asdict(scored))
    with energy.meter(facts["device"], facts["device_name"]) as meter:
        for index, item in enumerate(job["cases"]):
            _run_case(session, index, item, job, tell, Window(meter))
    session.close()


def _load(job: dict[str, Any], which: str) -> Session:
    asked = job[which]
    lists = {name: tuple(asked[name]) for name in ("tensor_split", "rpc")}
    request = LoadRequest(**{**asked, **lists, "artifact": Path(asked["artifact"])})
    session: Session = BACKENDS[job["backend"]].import_module().load(request)
    return session


def _facts(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    """What the engine did, as JSON.

    Raises:
        BackendError: a part of the model is not where it was asked to be, and --allow-partial was not given.
    """
    facts = session.facts()
    told = dataclasses.asdict(facts)
    if job["demand"] and (reason := unkept(Demand(**job["demand"]), facts)):
        if not job["allow_partial"]:
            raise BackendError(f"{reason}; --allow-partial measures it all the same")
        told["engine_settings"]["not_honoured"] = reason
    return told


def _tokens(session: Session, case: Case, job: dict[str, Any]) -> NDArray[np.int32]:
    """`[batch, case.context_tokens]`, of the user's text or at random."""
    if job["prompt_ids"] is None:
        return token_stream(case.context_tokens, case.batch, session.vocab_size, job["seed"])
    return text_stream(np.array(job["prompt_ids"], np.int32), case.context_tokens, case.batch)


def _run_case(
    session: Session, index: int, item: dict[str, Any], job: dict[str, Any], tell: Teller, window: Window
) -> None:
    case = Case(**item["case"])
    has_cache = case.kv_cache != "off"
    tell("case", index=index)

    def run() -> None:
        tokens = _tokens(session, case, job)
        tokens_sha256 = sha256(tokens)
        experts_hit = experts.count(session, case, tokens, is_mixture=job["is_mixture"])
        if not has_cache:  # whose answers are judged by those with a cache
            session.allocate(case.context_tokens, case.batch)
            expected = expected_logits(session, case, tokens)
        host = HostPeak()
        session.allocate(case.context_tokens, case.batch, kv_cache=has_cache)
        _facts(session, job)  # before anything is timed
        measure.fill(session, case, tokens)
        warm_up = measure.repeat(session, case, tokens)  # the measured shape, untimed
        if has_cache:
            expected = expected_logits(session, case, tokens)
        check_answers(case, warm_up.ids, expected)
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
                kept_tokens=sample.kept_tokens,
                experts=dataclasses.asdict(experts_hit),
                tokens_sha256=tokens_sha256,
                argmax_sha256=sha256(sample.ids),
                peak_host_bytes=host.bytes(),
                host_peak_since=host.since,
                driver_memory=nvml.process_bytes(),
                facts=_facts(session, job),
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
