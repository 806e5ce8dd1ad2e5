"""A quantised copy of a model, made in a process of its own by the engine that will run it, and kept."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.models import cache
from harness.models.artifact_weights import artifact_weights
from harness.models.artifacts import Artifact, file_stem, prepare
from harness.models.cache import check_room
from harness.models.sizes import weight_bytes
from harness.models.weights_id import weights_id
from harness.process import Worker, WorkerDiedError

if TYPE_CHECKING:
    from pathlib import Path

    from harness.models.progress import Progress
    from harness.work import Work


def quantised(work: Work, silence_s: float, progress: Progress) -> Artifact:
    """The artifact of a work whose weights are quantised here; written where the cache lacks it.

    Args:
        work: of a model that is not quantised yet, in one of its engine's formats.
        silence_s: how long the engine may write nothing before it is taken for hung.
        progress: called with `(label, done_bytes, total_bytes)`.

    Raises:
        UserError: the disk is too small, the original cannot be made, or the engine failed.
    """
    weights_id(work.source, progress)  # by which the copy is named
    path = path_of(work)
    if not path.exists():
        check_room(sum(to_write(work).values()))
        job = _from_file(work, progress) if has_original(work) else _from_preset(work)
        with cache.locked(path):
            if not path.exists():  # another run may have written it while this one waited
                with cache.written_whole(path) as partial:
                    _quantise(work, job, partial, silence_s, progress)
    return Artifact(path, _id_of_copy(work, progress), artifact_weights(path, work.source.architecture).n_bytes)


def quantised_in_memory(work: Work, original: Artifact) -> Artifact:
    """What an engine that quantises while it loads is given: the original, under a name for what becomes of it.

    Args:
        work: of a model that is not quantised yet, in one of its engine's formats.
        original: its file.
    """
    return replace(original, weights_id=_id_in_memory(work, original.weights_id))


def known_weights_id(work: Work) -> str | None:
    """What its rows will have as `weights_id`; None of a copy that is not there: its bytes are the engine's to make."""
    if work.has_quantised_copy:
        return _id_of_copy(work) if path_of(work).exists() else None
    original = weights_id(work.source)
    return _id_in_memory(work, original) if work.is_quantised_here else original


def has_original(work: Work) -> bool:
    """Whether a copy is made from a file of the whole model; of a preset it is made tensor by tensor."""
    return work.source.path is not None


def path_of(work: Work) -> Path:
    """Where the copy lies, or will lie: another version of the engine makes one of its own."""
    engine = hashlib.sha256(f"{work.engine.version} {work.engine.build}".encode()).hexdigest()[:8]
    ending = ".gguf" if work.artifact_kind == "gguf" else ""
    return cache.artifact_path(f"{file_stem(work.source)}-{work.settings.weights}-{engine}{ending}")


def to_write(work: Work) -> dict[Path, int]:
    """Bytes of the copy by its path; nothing where it exists."""
    path = path_of(work)
    return {} if path.exists() else {path: weight_bytes(work.source, work.roofline_format)}


def _id_of_copy(work: Work, progress: Progress | None = None) -> str:
    return weights_id(replace(work.source, path=path_of(work), origin=work.artifact_kind), progress)


def _id_in_memory(work: Work, original: str) -> str:
    return hashlib.sha256(f"{original} {work.settings.weights} in {work.backend}".encode()).hexdigest()


def _from_file(work: Work, progress: Progress) -> dict[str, str]:
    """What a worker is asked for, and of what."""
    original = prepare(work.source, work.artifact_kind, work.exported_format, progress)
    return {"task": "quantise", "source": str(original.path)}


def _from_preset(work: Work) -> dict[str, str]:
    return {"task": "synthesise", "preset": work.source.name, "name": file_stem(work.source)}


def _quantise(work: Work, job: dict[str, str], target: Path, silence_s: float, progress: Progress) -> None:
    total = weight_bytes(work.source, work.roofline_format)
    asked = {
        **job,
        "backend": work.backend,
        "target": str(target),
        "weight_format": work.settings.weights,
        "n_threads": work.settings.n_threads,
    }
    label = f"quantising {work.source.name} to {work.settings.weights} for {work.backend}"
    progress(label, 0, total)
    try:
        with Worker(asked) as worker:
            for event in worker.events(silence_s):
                if event["event"] == "failed":
                    raise UserError(f"{work}: {event['error']}")
                progress(label, min(event["done"], total), total)
    except WorkerDiedError as death:
        raise UserError(f"{work}: {label} ended early: {death.reason}") from death
