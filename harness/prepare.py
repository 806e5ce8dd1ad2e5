"""The model files that a plan needs, made before anything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.models.artifacts import prepare
from harness.quantise.artifact import quantised, quantised_in_memory

if TYPE_CHECKING:
    from harness.models.artifacts import Artifact
    from harness.plan import Plan
    from harness.progress import Reporter
    from harness.work import Work


def artifacts(plan: Plan, reporter: Reporter) -> dict[Work, Artifact]:
    """Synthesise, export or quantise what the cache lacks; works that read the same file share it.

    Raises:
        UserError: not enough disk, a model that an engine's format cannot hold, or an engine that cannot quantise it.
    """
    return {work: _artifact(plan, work, reporter) for work in plan.works}


def _artifact(plan: Plan, work: Work, reporter: Reporter) -> Artifact:
    if work.has_quantised_copy:
        return quantised(work, plan.timeout_s, reporter.preparing)
    artifact = prepare(work.source, work.artifact_kind, work.settings.weights, reporter.preparing)
    return quantised_in_memory(work, artifact) if work.is_quantised_here else artifact
