"""The model files that a plan needs, made before anything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.models.source import prepare

if TYPE_CHECKING:
    from harness.models.source import Artifact
    from harness.plan import Plan
    from harness.progress import Reporter
    from harness.work import Work


def artifacts(plan: Plan, reporter: Reporter) -> dict[Work, Artifact]:
    """Synthesise or export what the cache lacks; works that read the same file share it.

    Raises:
        UserError: not enough disk, or a model that an engine's format cannot hold.
    """
    return {
        work: prepare(work.source, work.artifact_kind, work.settings.weights, reporter.preparing) for work in plan.works
    }
