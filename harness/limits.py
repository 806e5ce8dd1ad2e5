"""What can be refused before anything slow starts: contexts, memory and disk that are too small."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import psutil

from harness.errors import UserError
from harness.models import cache
from harness.models.source import weight_bytes
from harness.probe import FAR_FROM, FAR_TOKENS
from harness.roofline.traffic import kv_bytes_per_token

if TYPE_CHECKING:
    from harness.models.source import ModelSource
    from harness.work import Work
    from harness.workload import Case

_KV_ELEMENT_BYTES = {"f32": 4.0}  # every other format takes two bytes or fewer
_WORKSPACE_BYTES = 500_000_000  # the engine itself, activations, logits


def check_context(source: ModelSource, cases: tuple[Case, ...]) -> None:
    """Every case must fit the model's context."""
    limit = source.architecture.max_context
    for case in cases:
        if limit is not None and case.context_tokens > limit:
            raise UserError(
                f"{source.name} holds {limit} tokens, but depth {case.n_depth} + prompt {case.n_prompt} + "
                f"generation {case.n_gen} is {case.context_tokens}; lower -d, -p or -n"
            )


def check_disk(needed: int) -> None:
    """The model files that a plan will write must fit the cache's disk, all together."""
    folder = cache.directory()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"the model files need {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free in {folder}; "
            "free some (tokenroof models --clean), or let TOKENROOF_CACHE name a folder on another disk"
        )


def memory_needed(work: Work, cases: tuple[Case, ...]) -> int:
    """Bytes for the weights, the largest KV cache and the engine's own needs, roughly."""
    architecture, settings = work.source.architecture, work.settings
    element = max(_KV_ELEMENT_BYTES.get(form or "", 2.0) for form in (settings.kv_k_format, settings.weights))
    probe_tokens = min(FAR_FROM + FAR_TOKENS, architecture.max_context or FAR_FROM)
    tokens = max(probe_tokens, *(case.batch * case.context_tokens for case in cases))
    kv_bytes = int(tokens * kv_bytes_per_token(architecture, element))
    return weight_bytes(work.source, settings.weights) + kv_bytes + _WORKSPACE_BYTES


def check_memory(work: Work, cases: tuple[Case, ...]) -> None:
    """Refuse what cannot fit. A model that is placed in part (-ngl) is the engine's to judge."""
    needed = memory_needed(work, cases)
    device = work.accelerator
    if device is None:
        room, where = psutil.virtual_memory().available, "are free in this machine's memory"
    elif device.memory_bytes is None or work.settings.n_gpu_layers != -1:
        return
    else:
        room, where = device.memory_bytes, f"are on the {device.name}"
    if needed > room:
        raise UserError(
            f"{work} needs about {needed / 1e9:.1f} GB, but {room / 1e9:.1f} GB {where}; "
            "take a smaller model (-m), a shorter context (-d, -p, -n) or a smaller batch (-B)"
        )
