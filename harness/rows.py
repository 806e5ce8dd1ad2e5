"""From a worker's events to a result row: what was asked, what was got, what is missing and why."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.metrics import metrics
from harness.models.tensor_types import tensor_types
from harness.roofline.nominal import PLAIN
from harness.tiers.endpoints import without_hosts
from harness.workload import case_columns
from results.safe_text import without_home
from results.schema import COLUMNS, SCHEMA_VERSION

if TYPE_CHECKING:
    from harness.ceilings.columns import Ceilings
    from harness.machine.conditions.watch import Seen
    from harness.models.artifacts import Artifact
    from harness.plan import Plan
    from harness.process import Event
    from harness.quality.measured import QualityCells
    from harness.work import Work
    from harness.workload import Case

Row = dict[str, Any]

_MEASURED = [
    column.name
    for column in COLUMNS
    if column.group in ("measured", "ceiling", "conditions") and column.name != "load_s"
]

_FROM_FACTS = (
    "backend_version", "engine_build", "engine_mode", "device", "n_threads", "gpu_layers_effective", "flash_attn",
    "n_params", "weight_format", "weight_bytes", "kv_k_format", "kv_v_format", "kv_allocated_tokens",
)  # fmt: skip


def sample(row: Row, event: Event) -> Row:
    """The raw intervals and answers behind a measured row, for the samples file: ids step by step, all sequences."""
    ids = zip(*event["ids"], strict=True)
    keys = ("row_id", "run_id", "backend", "model", "n_depth", "n_prompt", "n_gen", "batch", "launch", "repetition")
    return {
        **{key: row[key] for key in keys},
        "ttft_s": event["ttft_s"],
        "itl_s": event["itl_s"],
        "argmax": [one for step in ids for one in step],
    }


def _from_facts(facts: dict[str, Any]) -> Row:
    return {name: facts[name] for name in _FROM_FACTS} | {"weight_bits": 8 * facts["weight_bytes"] / facts["n_params"]}


def _of_file(work: Work, artifact: Artifact) -> dict[str, Any]:
    """What a row tells of the model's file: whether it was made of a pickle, and of which types its tensors are.

    Bytes by type are of a file that is not of one plain format: a Q4_K_M is a mixture. An engine that changes them
    while it loads tells of its own in `engine_settings`.
    """
    told: dict[str, Any] = {"unpickled": True} if work.source.unpickled else {}
    if work.settings.weights not in PLAIN:
        told["weight_types"] = {each.name: each.n_bytes for each in tensor_types(artifact.path)}
    return told


def _request(plan: Plan, work: Work, run_id: str, launch: int) -> Row:
    """What is known before a worker starts."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "launch": launch,
        "suite": plan.suite,
        "provenance": "measured",
        "machine": plan.label,
        "os": plan.machine.os,
        "cpu": plan.machine.cpu,
        "ram_bytes": plan.machine.ram_bytes,
        "backend": work.backend,
        "backend_version": work.engine.version,
        "engine_build": work.engine.build,
        "n_gpu_layers": work.settings.n_gpu_layers,
        "model": work.source.name,
        "architecture": work.source.architecture.model_type,
        "weights_origin": work.source.weights_origin,
        "weight_format": work.settings.weights,
        "seed": plan.seed,
    }


_OUTCOME = {"skipped": "was skipped", "failed": "failed"}


def not_tried(
    plan: Plan, work: Work, case: Case, run_id: str, *, status: str, reason: str, weights_id: str | None = None
) -> Row:
    """A case of which no worker was asked: "skipped" by the plan, or "failed" since its model could not be made."""
    return {
        **_request(plan, work, run_id, launch=1),
        **case_columns(case),
        "weights_id": weights_id,
        "repetition": 1,
        "started_at": _now(),
        "status": status,
        "error": without_hosts(without_home(reason), work.settings.rpc),
        "engine_settings": {"asked": work.settings.asked()},
        "unavailable": dict.fromkeys(_MEASURED, f"the case {_OUTCOME[status]}"),
        "row_id": uuid.uuid4().hex[:12],
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RowWriter:
    """Makes the rows of one launch of one work.

    Events fill it in order: `loaded` and `probe` once, then each repetition or failure makes a row.
    """

    def __init__(
        self,
        plan: Plan,
        work: Work,
        artifact: Artifact,
        ceilings: Ceilings,
        quality: QualityCells,
        run_id: str,
        launch: int,
    ) -> None:
        self._plan, self._work, self._ceilings, self._no_quality = plan, work, ceilings, quality.missing
        self._common: Row = {
            **_request(plan, work, run_id, launch),
            "weights_id": artifact.weights_id,
            **quality.values,
        }
        self._file = _of_file(work, artifact)
        self._loaded: Event | None = None
        self._probe: Event | None = None

    def loaded(self, event: Event) -> None:
        """The model is in memory."""
        self._loaded = event
        self._common["load_s"] = event["load_s"]

    def probed(self, event: Event) -> None:
        """The probe was scored."""
        self._probe = event
        self._common |= {"probe_nll": event["nll"], "probe_logits": event["logits"]}

    def measured(self, case: Case, event: Event, seen: Seen, engine_options: dict[str, Any]) -> Row:
        """A repetition that was measured, and what the parent saw of the device meanwhile."""
        facts, memory = event["facts"], event["memory"]
        driver_bytes, driver_missing = event["driver_memory"]
        values, missing = metrics(case, event["ttft_s"], event["itl_s"])
        ceilings, no_ceilings = self._ceilings.columns(case, facts, values, event["kept_tokens"])
        tiers = self._ceilings.tiers(case, facts, memory["kv_cache_bytes"])
        if tiers is None:
            missing["tiers"] = "a simulated engine holds no model"
        counted = event["counted"]
        no_conditions = {**seen.missing, **counted["missing"]}
        if driver_missing:
            missing["driver_device_bytes"] = driver_missing
        if not case.n_gen:
            missing["decode_start"] = "prefill only (-n 0)"
        missing |= self._no_quality
        if why := event["experts"]["missing"]:
            missing["experts_hit"] = why
        if event["kept_tokens"] is None:
            missing["kv_kept_tokens"] = "no cached prefix was reused (--kv-cache prefix)"
        settings = self._file | facts["engine_settings"] | engine_options
        settings["host_peak_since"] = event["host_peak_since"]
        settings["probe_far"] = self._probe["far_missing"] or "scored" if self._probe else None
        return self._row(
            case,
            repetition=event["repetition"],
            kv_kept_tokens=event["kept_tokens"],
            experts_hit=event["experts"]["hit"],
            started_at=event["started_at"],
            tokens_sha256=event["tokens_sha256"],
            argmax_sha256=event["argmax_sha256"],
            status="ok",
            peak_host_bytes=event["peak_host_bytes"],
            peak_device_bytes=memory["peak_device_bytes"],
            driver_device_bytes=driver_bytes,
            kv_cache_bytes=memory["kv_cache_bytes"],
            engine_settings={**settings, "asked": self._work.settings.asked()},
            tiers=tiers,
            unavailable={**facts["unavailable"], **memory["unavailable"], **missing, **no_ceilings, **no_conditions},
            **self._device(facts),
            **_from_facts(facts),
            **values,
            **ceilings,
            **seen.values,
            conditions=seen.details,
            **counted["values"],
        )

    def failed(self, case: Case, repetition: int, reason: str, engine_options: dict[str, Any]) -> Row:
        """A case that could not be measured, with what is known all the same."""
        facts = self._loaded["facts"] if self._loaded else None
        return self._row(
            case,
            repetition=repetition,
            started_at=_now(),
            status="failed",
            error=without_hosts(without_home(reason), self._work.settings.rpc),
            engine_settings={**engine_options, "asked": self._work.settings.asked()},
            unavailable=dict.fromkeys(_MEASURED, "the case failed"),
            **(self._device(facts) | _from_facts(facts) if facts else {}),
        )

    def _row(self, case: Case, **columns: object) -> Row:
        return {**self._common, **case_columns(case), **columns, "row_id": uuid.uuid4().hex[:12]}

    def _device(self, facts: dict[str, Any]) -> Row:
        """A CPU's name and memory are the harness's to tell; the engine knows its accelerators."""
        if facts["device"] == "cpu":
            machine = self._plan.machine
            return {"device_name": machine.cpu, "device_memory_bytes": machine.ram_bytes}
        return {"device_name": facts["device_name"], "device_memory_bytes": facts["device_memory_bytes"]}
