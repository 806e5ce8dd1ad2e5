"""One launch: a worker process for one work, its events turned into rows as they come."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from backends.base import LoadRequest
from harness.machine.conditions.watch import Watch, watch
from harness.process import Worker
from harness.rows import Row, RowWriter, sample
from harness.tiers.proof import demand_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.ceilings.columns import Ceilings
    from harness.clock import Clock
    from harness.models.artifacts import Artifact
    from harness.plan import Plan
    from harness.process import Event
    from harness.quality.measured import QualityCells
    from harness.work import Work
    from harness.workload import Case, Due


class Keep(Protocol):
    """Stores a row, with the raw sample behind a measured one."""

    def __call__(self, row: Row, sample: Row | None) -> None:
        """Have both on disk when it returns."""


class Launch:
    """One start of a worker.

    Args:
        plan, work, artifact: what to run.
        ceilings: of this work's rows.
        quality: of this work's rows.
        run_id, number: name the launch in its rows.
        due: the cases, in order; emptied as they are done.
        engine_options: what only this engine knows, and why it is set.
        keep: called with each row.
        clock: told what is finished.
        doing: told what goes on.

    Attributes:
        failed: cases that cannot be measured.
    """

    def __init__(  # noqa: PLR0913 it joins what the runner holds
        self,
        plan: Plan,
        work: Work,
        artifact: Artifact,
        *,
        ceilings: Ceilings,
        quality: QualityCells,
        run_id: str,
        number: int,
        due: Due,
        engine_options: dict[str, Any],
        keep: Keep,
        clock: Clock,
        doing: Callable[[str], None],
    ) -> None:
        self._plan, self._work, self._artifact = plan, work, artifact
        self._ceilings, self._engine_options, self._due = ceilings, engine_options, due
        self._keep, self._clock, self._doing = keep, clock, doing
        self._demand = demand_of(work, ceilings.weights) if ceilings.weights else None
        self._rows = RowWriter(plan, work, artifact, ceilings, quality, run_id, number)
        self._asked = dict(due)
        self._cases = list(due)
        self._current: Case | None = None
        self._warm: set[Case] = set()
        self.failed: list[Case] = []

    def run(self) -> None:
        """Run the worker to its end.

        Raises:
            WorkerDiedError: it did not get there; `fail` says so in the rows.
        """
        self._doing(f"{self._work}: loading")
        with Worker(self._job()) as worker, ExitStack() as watching:
            for event in worker.events(self._plan.timeout_s):
                if event["event"] == "loaded":
                    facts = event["facts"]
                    self._watch: Watch = watching.enter_context(watch(facts["device"], facts["device_name"]))
                self._handle(event)

    def fail(self, reason: str, *, all_cases: bool = False) -> None:
        """Write a failed row for the case that was running; for all that are due if none was, or if told so."""
        for case in [self._current] if self._current and not all_cases else list(self._due):
            repetitions = self._due.pop(case)
            self.failed.append(case)
            done = self._asked[case] - repetitions
            self._clock.give_up(self._work, case, repetitions, warm=case in self._warm)
            self._keep(self._rows.failed(case, done + 1, reason, self._engine_options), None)
        self._current = None

    def _job(self) -> dict[str, Any]:
        return {
            "task": "run",
            "backend": self._work.backend,
            "request": request_of(self._work, self._artifact, self._engine_options),
            "demand": asdict(self._demand) if self._demand else None,
            "allow_partial": self._work.settings.allow_partial,
            "window": self._work.source.architecture.window,
            "is_mixture": self._work.source.architecture.is_mixture,
            "seed": self._plan.seed,
            "prompt_ids": self._prompt_ids(),
            "cases": [{"case": asdict(case), "repetitions": self._due[case]} for case in self._cases],
        }

    def _prompt_ids(self) -> list[int] | None:
        ids = self._plan.prompt_ids.get(self._work.source)
        return None if ids is None else ids.tolist()

    def _handle(self, event: Event) -> None:
        match event["event"]:
            case "loaded":
                self._ceilings.loaded(event["held"])
                self._rows.loaded(event)
                self._doing(f"{self._work}: scoring the probe")
            case "probe":
                self._rows.probed(event)
                self._clock.loaded(self._work)
            case "case":
                self._current = self._cases[event["index"]]
                self._doing(f"{self._work}: {self._current}, warming up")
            case "warm":
                self._warm.add(self._cases[event["index"]])
                self._clock.warm(self._work, self._cases[event["index"]])
                self._doing(f"{self._work}: {self._current}, measuring")
            case "repetition":
                self._measured(self._cases[event["index"]], event)
            case "failed" | "case_failed":
                self.fail(event["error"])

    def _measured(self, case: Case, event: Event) -> None:
        seen = self._watch.since(datetime.fromisoformat(event["started_at"]).timestamp())
        self._due[case] -= 1
        if not self._due[case]:
            del self._due[case]
            self._current = None
        self._clock.repetition(self._work, case)
        row = self._rows.measured(case, event, seen, self._engine_options)
        self._keep(row, sample(row, event))
        self._doing(f"{self._work}: {case}, measuring")


def request_of(work: Work, artifact: Artifact, engine_options: dict[str, Any]) -> dict[str, Any]:
    """What a worker asks of the engine for a work, a `LoadRequest`, as its job has it."""
    settings = work.settings
    request = LoadRequest(
        artifact=artifact.path,
        weight_format=settings.weights,
        device=settings.device,
        n_gpu_layers=settings.n_gpu_layers,
        n_threads=settings.n_threads,
        flash_attn=settings.flash_attn,
        kv_k_format=settings.kv_k_format,
        kv_v_format=settings.kv_v_format,
        n_batch=settings.n_batch,
        n_ubatch=settings.n_ubatch,
        n_cpu_moe=settings.n_cpu_moe,
        kv_offload=settings.kv_offload,
        split_mode=settings.split_mode,
        tensor_split=settings.tensor_split,
        rpc=settings.rpc,
        engine_options=engine_options | ({} if settings.cache_kind == "auto" else {"cache": settings.cache_kind}),
    )
    return asdict(request) | {"artifact": str(artifact.path)}
