"""The job of measuring: one model in one engine, case after case."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import experts, measure, probe
from harness.machine import nvml
from harness.machine.conditions import energy
from harness.machine.conditions.window import Window
from harness.machine.memory import HostPeak
from harness.selfcheck import check_answers, expected_logits
from harness.worker.events import guard
from harness.worker.loading import facts_of, load
from harness.workload import Case, sha256, text_stream, token_stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Session
    from harness.worker.events import Teller


def run(job: dict[str, Any], tell: Teller) -> None:
    """Load the model, score its probe, and measure what is due of each case."""
    tell("loading")
    started = time.perf_counter()
    session = guard(lambda: load(job, "request"), tell, "failed")
    if session is None:
        return
    load_s = time.perf_counter() - started
    told = guard(lambda: (facts_of(session, job), session.held()), tell, "failed")
    if told is None:
        return
    facts, held = told
    tell("loaded", load_s=load_s, facts=facts, held=held and [dataclasses.asdict(each) for each in held])
    scored = guard(lambda: probe.score(session, window=job["window"]), tell, "failed")
    if scored is None:
        return
    tell("probe", **dataclasses.asdict(scored))
    with energy.meter(facts["device"], facts["device_name"]) as meter:
        for index, item in enumerate(job["cases"]):
            _run_case(session, index, item, job, tell, Window(meter))
    session.close()


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
        facts_of(session, job)  # before anything is timed
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
                facts=facts_of(session, job),
                memory=dataclasses.asdict(session.memory()),
                counted=window.counted,
            )

    guard(run, tell, "case_failed", index=index)
