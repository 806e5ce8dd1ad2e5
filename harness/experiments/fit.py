"""The most layers that really fit beside the host's memory: an estimate, then loads that allocate and time nothing."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.launch import request_of
from harness.models.artifact_weights import artifact_weights
from harness.process import Worker, WorkerDiedError
from harness.roofline.placement import gpu_layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.models.artifacts import Artifact
    from harness.progress import Reporter
    from harness.roofline.weights import Weights
    from harness.work import Work
    from harness.workload import Case


def with_layers(work: Work, n_gpu_layers: int) -> Work:
    """The same work with another number of layers off the host."""
    return replace(work, settings=replace(work.settings, n_gpu_layers=n_gpu_layers))


def estimate(work: Work, weights: Weights, case: Case) -> int:
    """The most layers that should fit, by the total memory of the devices; all where one does not tell its own."""
    architecture = work.source.architecture
    room = [device.memory_bytes for device in with_layers(work, -1).accelerators]
    if None in room:
        return architecture.n_layers + 1
    room_bytes = sum(n_bytes or 0 for n_bytes in room)
    return gpu_layers(weights, room_bytes, context=case.context_tokens, batch=case.batch)


def holds(work: Work, artifact: Artifact, case: Case, silence_s: float) -> bool:
    """Whether the engine can place a work as it asks, with the KV cache of a case.

    Raises:
        UserError: it cannot load the model for another reason than want of memory.
    """
    job = {"task": "hold", "backend": work.backend, "request": request_of(work, artifact, {}), "case": asdict(case)}
    try:
        with Worker(job) as worker:
            for event in worker.events(silence_s):
                if event["event"] == "failed":
                    raise UserError(f"{work}: {event['error']}")
                return bool(event["event"] == "held")
    except WorkerDiedError as death:
        raise UserError(f"{work}: {death.reason}") from death
    return False


def most_layers(work: Work, artifact: Artifact, case: Case, silence_s: float, reporter: Reporter) -> int:
    """The most layers of a work that fit off the host, with the KV cache of a case; the output layer is one.

    Raises:
        UserError: as `holds`.
    """
    all_layers = work.source.architecture.n_layers + 1

    def fits(layers: int) -> bool:
        reporter.doing(f"{work}: does it fit with -ngl {layers}?", 0, 0)
        return holds(with_layers(work, layers), artifact, case, silence_s)

    weights = artifact_weights(artifact.path, work.source.architecture)
    most = largest(fits, estimate(work, weights, case), all_layers)
    reporter.note(f"-ngl {most} of {all_layers} fits" + (f", {most + 1} does not" if most < all_layers else ""))
    return most


def largest(fits: Callable[[int], bool], guess: int, most: int) -> int:
    """The largest number that fits, found with few trials where the guess is near.

    Args:
        fits: whether a number from 1 to `most` fits; if it does, so do all below it. 0 always fits.
        guess: where to begin.
        most: the largest that makes sense.
    """
    fitting, too_large = 0, most + 1
    trial, stride = min(max(guess, 1), most), 1
    while too_large - fitting > 1:
        if fits(trial):
            fitting = trial
        else:
            too_large = trial
        if fitting == 0:
            trial = max(too_large - stride, 1)
        elif too_large > most:
            trial = min(fitting + stride, most)
        else:
            trial = (fitting + too_large) // 2
        stride *= 2
    return fitting
