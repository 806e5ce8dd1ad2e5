"""A session for a job, and what it tells of itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.base import BackendError, LoadRequest
from backends.registry import BACKENDS
from harness.tiers.proof import Demand, unkept

if TYPE_CHECKING:
    from backends.base import Session


def load(job: dict[str, Any], which: str) -> Session:
    """Load the model of the request that the job has under this name."""
    asked = job[which]
    lists = {name: tuple(asked[name]) for name in ("tensor_split", "rpc")}
    request = LoadRequest(**{**asked, **lists, "artifact": Path(asked["artifact"])})
    session: Session = BACKENDS[job["backend"]].import_module().load(request)
    return session


def facts_of(session: Session, job: dict[str, Any]) -> dict[str, Any]:
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
