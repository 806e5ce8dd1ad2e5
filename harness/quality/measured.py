"""The quality columns of a work's rows: measured once, in a process of its own, before anything is timed.

That of quantised weights is kept beside them, since it follows from the file, the engine and the device alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from backends.registry import BACKENDS
from harness.errors import UserError
from harness.launch import request_of
from harness.limits import memory_needed, shortage
from harness.models import cache
from harness.models.artifacts import prepare
from harness.process import Worker, WorkerDiedError
from harness.quality.answers import CONTEXT, Quality
from harness.quality.questions import Question, of_kv_cache, of_weights
from harness.quantise.artifact import path_of
from harness.workload import Case

if TYPE_CHECKING:
    from pathlib import Path

    from harness.models.artifacts import Artifact
    from harness.models.progress import Progress
    from harness.work import Work

_NOT_MEASURED = "not compared with unquantised answers"
_CASES = (Case(n_depth=0, n_prompt=CONTEXT, n_gen=0),)


@dataclass(frozen=True)
class QualityCells:
    """What the rows of a work say of its quality.

    Attributes:
        values: by column.
        missing: column -> why it is empty.
    """

    values: dict[str, float]
    missing: dict[str, str]


@dataclass(frozen=True)
class Cost:
    """What measuring a work's quality should take, roughly; nothing where it is known already, or cannot be."""

    seconds: float
    memory_bytes: int


def quality_cells(work: Work, artifact: Artifact, silence_s: float, progress: Progress) -> QualityCells:
    """Measure what is not known yet; what cannot be measured is empty with the reason.

    Args:
        work: whose rows they are.
        artifact: its model.
        silence_s: how long the engine may say nothing before it is taken for hung.
        progress: told of an original that has to be written first.
    """
    cells = QualityCells({}, {})
    for prefix, question in (("quality", of_weights(work)), ("kv_quality", of_kv_cache(work))):
        found: Quality | str
        if isinstance(question, str):
            found = question
        else:
            found = _kept(question) or _obstacle(question) or _measure(question, artifact, silence_s, progress)
        columns = (f"{prefix}_kl", f"{prefix}_top1")
        if isinstance(found, Quality):
            cells.values.update(zip(columns, (found.kl, found.top1), strict=True))
        else:
            cells.missing.update(dict.fromkeys(columns, found))
    return cells


def cost(work: Work) -> Cost:
    """Of both models of each question: loading and a forward pass."""
    seconds, memory_bytes = 0.0, 0
    for question in (of_weights(work), of_kv_cache(work)):
        if isinstance(question, str) or _kept(question) or _obstacle(question):
            continue
        for each in (question.unquantised, question.quantised):
            parts = each.estimate(_CASES)
            seconds += parts.load_s + sum(parts.case_s.values())
        memory_bytes = max(memory_bytes, memory_needed(question.unquantised, _CASES))
    return Cost(seconds, memory_bytes)


def _obstacle(question: Question) -> str | None:
    lacks = shortage(question.unquantised, _CASES)
    return lacks and f"{_NOT_MEASURED}: {lacks}"


def _measure(question: Question, artifact: Artifact, silence_s: float, progress: Progress) -> Quality | str:
    full, original = question.unquantised, artifact
    safe = BACKENDS[full.backend].after_crash  # nothing is timed, so its fastest kernels are worth no crash
    try:
        if question.is_of_weights:
            original = prepare(full.source, full.artifact_kind, full.exported_format, progress)
        job = {
            "task": "quality",
            "backend": full.backend,
            "unquantised": request_of(full, original, safe),
            "quantised": request_of(question.quantised, artifact, safe),
        }
        with Worker(job) as worker:
            (answer,) = (event for event in worker.events(silence_s) if event["event"] in ("quality", "failed"))
    except (UserError, WorkerDiedError) as error:
        return f"{_NOT_MEASURED}: {error}"
    if answer["event"] == "failed":
        return f"{_NOT_MEASURED}: {answer['error']}"
    found = Quality(answer["kl"], answer["top1"])
    if note := _note(question):
        with cache.locked(note), cache.written_whole(note) as partial:
            partial.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def _kept(question: Question) -> Quality | None:
    """None also where the note is damaged: it is measured again."""
    if (note := _note(question)) is None:
        return None
    try:
        return Quality(**json.loads(note.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):
        return None


def _note(question: Question) -> Path | None:
    """The file beside the quantised weights; none for a KV cache, which is made anew each time.

    The copy's name tells the engine's version and build; those of the same copy on two devices round differently.
    """
    if not question.is_of_weights:
        return None
    work = question.quantised
    return cache.quality_note(path_of(work), work.accelerator.name if work.accelerator else "cpu")
