"""What can be refused before anything slow starts: contexts and memory that are too small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from harness.errors import UserError
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


def memory_needed(work: Work, cases: tuple[Case, ...]) -> int:
    """Bytes for the weights, the largest KV cache and the engine's own needs, roughly."""
    architecture, settings = work.source.architecture, work.settings
    element = max(
        _KV_ELEMENT_BYTES.get(form or "", 2.0)
        for form in (settings.kv_k_format, settings.kv_v_format, settings.weights)
    )
    probe_tokens = min(FAR_FROM + FAR_TOKENS, architecture.max_context or FAR_FROM)
    tokens = max(probe_tokens, *(case.batch * case.context_tokens for case in cases))
    kv_bytes = int(tokens * kv_bytes_per_token(architecture, element))
    return weight_bytes(work.source, settings.weights) + kv_bytes + _WORKSPACE_BYTES


def memory_obstacle(work: Work, cases: tuple[Case, ...]) -> str | None:
    """Why a work cannot fit; None if it may. A model that is placed in part (-ngl) is the engine's to judge."""
    needed = memory_needed(work, cases)
    device = work.accelerator
    if device is None:
        room, where = psutil.virtual_memory().available, "are free in this machine's memory"
    elif work.spreads:  # llama.cpp splits a model over all GPUs
        known = [each.memory_bytes for each in work.engine.accelerators]
        room, where = sum(bytes_ or 0 for bytes_ in known), "are on this machine's GPUs"
        if None in known or work.settings.n_gpu_layers != -1:
            return None
    elif device.memory_bytes is None:
        return None
    else:
        room, where = device.memory_bytes, f"are on the {device.name}"
    if needed <= room:
        return None
    return (
        f"{work} needs about {needed / 1e9:.1f} GB, but {room / 1e9:.1f} GB {where}; "
        "take a smaller model (-m), a shorter context (-d, -p, -n) or a smaller batch (-B)"
    )
