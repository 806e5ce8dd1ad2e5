"""The rows of a server: what was asked, what its client saw, what is missing and why."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from backends.openai import NAME
from harness.serving.ceilings import KV_ASSUMED
from harness.serving.metrics import intervals_s, metrics
from harness.workload import case_columns
from results.safe_text import one_line, without_bidi_marks, without_home
from results.schema import COLUMNS, SCHEMA_VERSION

if TYPE_CHECKING:
    from harness.serving.case_run import Round
    from harness.serving.ceilings import ServingCeilings
    from harness.serving.latency import Latency
    from harness.serving.plan import ServingPlan
    from harness.serving.server import Server
    from harness.workload import Case

Row = dict[str, Any]

_TTFT = "of a client there is ttft_client_s, which holds tokenising, queueing and the network"
_GROUP_REASONS = {
    "machine": "the server does not tell",
    "engine": "the server does not tell",
    "model": "the server does not tell",
    "measured": "only the server's own process could tell",
    "conditions": "the server's machine is not looked at from its client",
    "verification": "a server's protocol shows no logits to compare",
}
_TOLD_ELSEWHERE = frozenset({"verified_with", "verified_why", "row_id"})


class ServingRows:
    """Makes the rows of one run of a server.

    Args:
        plan: what runs.
        run_id, launch: name the run, and the call of it, in its rows.
        salt: what tells this call's prompts from others'.
    """

    def __init__(self, plan: ServingPlan, run_id: str, launch: int, salt: str) -> None:
        self._plan, self._salt = plan, salt
        self._server: Server | None = None
        self._ceilings: ServingCeilings
        source, machine = plan.source, plan.machine
        self._common: Row = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "launch": launch,
            "provenance": "measured",
            "machine": plan.label,
            "os": machine and machine.os,
            "cpu": machine and machine.cpu,
            "ram_bytes": machine and machine.ram_bytes,
            **_device(plan),
            "backend": NAME,
            "model": plan.model,
            "architecture": source and source.architecture.model_type,
            "weights_origin": source and source.weights_origin,
            "weight_format": plan.weights,
            "seed": plan.seed,
            "request_rate": plan.rate,
        }

    def connected(self, server: Server, latency: Latency, ceilings: ServingCeilings) -> None:
        """The server answered."""
        self._server, self._ceilings = server, ceilings
        told = {"n_params": server.told.n_params, "weight_bytes": server.told.weight_bytes}
        by_shape = ceilings.model_facts()
        facts: Row = {name: told[name] or by_shape.get(name) for name in told}
        facts["weight_format"] = by_shape.get("weight_format", self._plan.weights)
        bits = (
            8 * facts["weight_bytes"] / facts["n_params"]
            if None not in (facts["weight_bytes"], facts["n_params"])
            else None
        )
        self._common |= {
            **facts,
            "weight_bits": bits,
            "backend_version": server.name,
            "kv_allocated_tokens": server.told.context,
            "network_latency_s": latency.network_s,
            "server_latency_s": latency.server_s,
        }

    def measured(self, case: Case, repetition: int, found: Round) -> Row:
        """A repetition that was measured."""
        values, missing = metrics(found.replies, case.n_gen)
        ceilings, no_ceilings = self._ceilings.columns(case, values, found.kept_tokens)
        reasoning, no_reasoning = _reasoning(found, case.n_gen)
        missing |= no_reasoning
        missing |= dict.fromkeys(("ttft_s", "prefill_tok_s"), _TTFT)
        missing["argmax_sha256"] = "a server's protocol shows no token ids"
        missing["tokens_sha256"] = "each repetition has prompts of its own, so that no prompt cache has seen them"
        if self._common["network_latency_s"] is None:
            missing["network_latency_s"] = "the server has no list of models to ask for"
        if self._plan.rate is None:
            missing["request_rate"] = "all requests of a repetition are sent at once"
        if not case.n_gen:
            missing["decode_start"] = "prefill only (-n 0)"
        if found.kept_tokens is None:
            missing["kv_kept_tokens"] = _not_kept(case, found)
        return self._row(
            case,
            missing | no_ceilings,
            repetition=repetition,
            status="ok",
            started_at=found.started_at,
            kv_kept_tokens=found.kept_tokens,
            engine_settings=self._settings() | {"tokens_counted_by": found.counted_by},
            conditions={
                "prompt_salt": self._salt,
                "chunks": sum(len(reply.arrivals_ns) for reply in found.replies),
                "attempts": sum(reply.attempts for reply in found.replies),
            },
            derived={"kv_bytes_per_token": KV_ASSUMED, "kv_read_bytes": KV_ASSUMED} if ceilings else None,
            reasoning_tokens=reasoning,
            **values,
            **ceilings,
        )

    def failed(self, case: Case, repetition: int, reason: str) -> Row:
        """A repetition that could not be measured."""
        return self._row(
            case,
            {column.name: "the case failed" for column in COLUMNS if column.group in {"measured", "ceiling"}},
            repetition=repetition,
            status="failed",
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            error=without_bidi_marks(one_line(without_home(self._plan.endpoint.without_secrets(reason)))),
            engine_settings=self._settings(),
        )

    def sample(self, row: Row, case: Case, found: Round) -> Row:
        """The intervals behind a measured row, for the samples file: stream after stream."""
        keys = ("row_id", "run_id", "backend", "model", "n_depth", "n_prompt", "n_gen", "batch", "launch", "repetition")
        itl_s = intervals_s(found.replies, case.n_gen).tolist()
        return {**{key: row[key] for key in keys}, "ttft_s": None, "itl_s": itl_s, "argmax": []}

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"asked": self._plan.asked(), "base_url": self._plan.endpoint.shown}
        if server := self._server:
            settings |= {
                "path": server.path,
                "prompts": "token ids" if server.takes_ids else "text",
                "exact_length": sorted(server.dialect.exact(1, server.eos_ids)) if server.is_exact else ["max_tokens"],
                "uncached_by": server.dialect.uncached or None,
                "model_file": server.told.model_file,
                "slots": server.told.slots,
            }
        return {name: value for name, value in settings.items() if value is not None}

    def _row(self, case: Case, missing: dict[str, str], **columns: object) -> Row:
        row = {
            **self._common,
            **case_columns(case),
            **{name: value for name, value in columns.items() if value is not None},
            "row_id": uuid.uuid4().hex[:12],
        }
        reasons = {
            column.name: missing.get(column.name, _GROUP_REASONS.get(column.group, ""))
            for column in COLUMNS
            if row.get(column.name) is None and column.name not in _TOLD_ELSEWHERE
        }
        return row | {"unavailable": {name: why for name, why in reasons.items() if why}}


def _device(plan: ServingPlan) -> Row:
    """Whose memory the server reads, called as an engine in process calls it where it is this machine's."""
    machine, device = plan.machine, plan.device
    if machine and device and len(machine.gpus) == 1:
        return {"device_name": machine.gpus[0].name, "device_memory_bytes": machine.gpus[0].memory_bytes}
    if machine and not device and not machine.gpus:
        return {"device_name": machine.cpu, "device_memory_bytes": machine.ram_bytes}
    return {"device_name": device and device.name}


def _not_kept(case: Case, found: Round) -> str:
    """Why nobody knows how much of a prompt was kept."""
    if not case.n_depth:
        return "no prompt was meant to be cached (--prefix-cache)"
    if found.shows_kept:
        return "the server does not tell what it kept; by its TTFT, most of the prefix"
    return "the server does not tell what it kept, and its TTFT does not show it"


def _reasoning(found: Round, n_gen: int) -> tuple[int | None, dict[str, str]]:
    """Tokens of thought in all replies: the server's count, else the chunks that hold them where each is one token."""
    told = [reply.reasoning_tokens for reply in found.replies]
    counts = [n for n in told if n is not None]
    if len(counts) == len(told):
        return sum(counts), {}
    if not any(reply.reasoning_chunks for reply in found.replies):
        return 0, {}
    if n_gen and all(reply.shows_single_tokens(n_gen) for reply in found.replies):
        return sum(reply.reasoning_chunks for reply in found.replies), {}
    return None, {"reasoning_tokens": "the server does not count them, and its chunks hold several tokens"}
