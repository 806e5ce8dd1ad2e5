"""A model with pickled weights, written once more with safetensors: a directory of the cache, for every engine."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from backends.registry import BACKENDS
from harness.errors import UserError
from harness.models import cache
from harness.models.digest import Span, digest
from harness.models.hf_config import BESIDE_WEIGHTS
from harness.models.pickles import INDEX_NAME
from harness.models.progress import labelled
from harness.process import Worker, WorkerDiedError
from results.safe_text import as_file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.models.progress import Progress

_READER = "torch"
_SILENCE_S = 300.0


def unpickled(directory: Path, weights: Sequence[Path], name: str, progress: Progress | None = None) -> Path:
    """The directory with safetensors; written where the cache lacks it.

    The pickles are read in a process of its own, where torch lets nothing but tensors out of them.

    Args:
        directory: of Hugging Face's layout.
        weights: its pickle files, from `pickles.pickled_weights`.
        name: what the model is called.
        progress: called with `(label, done_bytes, total_bytes)`.

    Raises:
        UserError: torch is not installed, the disk is too small, or a file is damaged or asks for more than tensors.
    """
    if not BACKENDS[_READER].installed:
        raise UserError(f'{directory}: pickled weights need torch: pip install "tokenroof[torch]"')
    beside = sorted({file for pattern in BESIDE_WEIGHTS for file in directory.glob(pattern)} - {directory / INDEX_NAME})
    key = _digest([*beside, *weights], labelled(progress, f"hashing {name}"))
    path = cache.artifact_path(f"{as_file_name(name)}-{key[:12]}-unpickled")
    if not path.exists():
        total = sum(file.stat().st_size for file in weights)
        cache.check_room(total)
        with cache.locked(path):
            if not path.exists():  # another run may have written it while this one waited
                with cache.written_whole(path) as partial:
                    report = labelled(progress, f"writing {name} as safetensors")
                    _write(directory, weights, partial, lambda done: report(min(done, total), total))
                    for file in beside:
                        shutil.copyfile(file, partial / file.name)
    return path


def _write(directory: Path, weights: Sequence[Path], target: Path, progress: Callable[[int], None]) -> None:
    job = {"task": "unpickle", "backend": _READER, "files": [str(file) for file in weights], "target": str(target)}
    progress(0)
    try:
        with Worker(job) as worker:
            for event in worker.events(_SILENCE_S):
                if event["event"] == "failed":
                    raise UserError(f"{directory}: {event['error']}")
                progress(event["done"])
    except WorkerDiedError as death:
        raise UserError(f"{directory}: reading its pickled weights ended early: {death.reason}") from death


def _digest(files: Sequence[Path], progress: Callable[[int, int], None]) -> str:
    """Of their names and all that is in them."""
    return digest(files, lambda: [Span(file.name, file, 0, file.stat().st_size) for file in files], progress)
