"""Ours beside an engine's own tool: the worker's job, the rates of both, and their ratio."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from harness.process import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backends.base import LoadRequest
    from harness.process import Event
    from harness.workload import Case

_SILENCE_S = 600.0


@dataclass
class Rates:
    """Tokens a second, one entry a repetition."""

    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)


def worker_events(
    backend: str, request: LoadRequest, case: Case | None = None, repetitions: int = 0
) -> Iterator[Event]:
    """What the real worker tells of one case, or of loading and the probe alone; a failure ends the script."""
    job = {
        "task": "run",
        "backend": backend,
        "request": asdict(request) | {"artifact": str(request.artifact)},
        "demand": None,
        "allow_partial": False,
        "seed": 1,
        "prompt_ids": None,
        "is_mixture": False,
        "window": None,
        "cases": [{"case": asdict(case), "repetitions": repetitions}] if case else [],
    }
    with Worker(job) as worker:
        for event in worker.events(_SILENCE_S):
            if event["event"] in {"failed", "case_failed"}:
                raise SystemExit(f"{backend}: {event['error']}")
            yield event


def run_ours(backend: str, request: LoadRequest, case: Case, repetitions: int, rates: Rates) -> None:
    """One launch of the worker, its repetitions added to `rates`."""
    for event in worker_events(backend, request, case, repetitions):
        if event["event"] == "repetition":
            rates.prefill.append(case.n_prompt / event["ttft_s"])
            rates.decode.append(len(event["itl_s"]) / sum(event["itl_s"]))


def compare(name: str, rounds: int, run_theirs: Callable[[Rates], None], run_ours: Callable[[Rates], None]) -> None:
    """Let the two take turns, and print the medians over all rounds: a machine's speed drifts, their ratio less.

    Args:
        name: of the other tool, up to 13 characters.
        rounds: of one turn each.
        run_theirs: adds one turn of the other tool.
        run_ours: adds one turn of ours.
    """
    theirs, ours = Rates(), Rates()
    for number in range(rounds):
        run_theirs(theirs)
        run_ours(ours)
        print(f"round {number + 1} of {rounds} done", flush=True)
    print(f"{'median tok/s':14}{name:>14}{'tokenroof':>14}{'ratio':>8}")
    for phase in ("prefill", "decode"):
        them, us = statistics.median(getattr(theirs, phase)), statistics.median(getattr(ours, phase))
        print(f"{phase:14}{them:14.2f}{us:14.2f}{us / them:8.3f}")
