"""What can be refused before anything slow starts: contexts and memory that are too small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from harness.errors import UserError
from harness.models.artifact_weights import weights_of
from harness.models.sizes import weight_bytes
from harness.probe import FAR_FROM, FAR_TOKENS
from harness.roofline.traffic import kv_bytes_per_token
from harness.roofline.workspace import Torch
from results.amounts import size

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
    """Bytes for the weights, the largest KV cache or uncached forward pass, and the engine's own needs, roughly."""
    element = _element_bytes(work)
    passes = [_pass_bytes(work, case, int(element)) for case in cases if case.kv_cache == "off"]
    kv_bytes = _kv_bytes(work, cases)
    return _weight_bytes(work) + max(kv_bytes, *passes, 0) + _WORKSPACE_BYTES


def _weight_bytes(work: Work) -> int:
    """At the most: what is quantised while it loads is in the host's memory in bf16 first."""
    at_last = weight_bytes(work.source, work.roofline_format)
    quantises_here = work.is_quantised_here and not work.has_quantised_copy and work.accelerator is None
    return max(at_last, weight_bytes(work.source, "bf16")) if quantises_here else at_last


def _element_bytes(work: Work) -> float:
    settings = work.settings
    formats = (settings.kv_k_format, settings.kv_v_format, settings.weights)
    return max(_KV_ELEMENT_BYTES.get(form or "", 2.0) for form in formats)


def _kv_bytes(work: Work, cases: tuple[Case, ...]) -> int:
    architecture = work.source.architecture
    probe_tokens = min(FAR_FROM + FAR_TOKENS, architecture.max_context or FAR_FROM)
    tokens = max(probe_tokens, *(case.batch * case.context_tokens for case in cases))
    return int(tokens * kv_bytes_per_token(architecture, _element_bytes(work)))


def _pass_bytes(work: Work, case: Case, element_bytes: int) -> int:
    """What a forward pass over a whole text without a KV cache keeps alive; llama.cpp computes it in small pieces."""
    if work.artifact_kind == "gguf":
        return 0
    whole = Torch(case.context_tokens, element_bytes)
    return whole.workspace_bytes(work.source.architecture, case.context_tokens, case.batch)


def memory_obstacle(work: Work, cases: tuple[Case, ...]) -> str | None:
    """Why a work cannot fit, and what to do; None if it may, as far as the memories tell their sizes."""
    lacks = shortage(work, cases)
    return lacks and f"{lacks}; take a smaller model (-m), a shorter context (-d, -p, -n) or a smaller batch (-B)"


def shortage(work: Work, cases: tuple[Case, ...]) -> str | None:
    """Which memory lacks how much for a work; None if none does, as far as they tell their sizes."""
    for n_bytes, room, where in _demands(work, memory_needed(work, cases), cases):
        if room is not None and n_bytes > room:
            return f"{work} needs about {size(n_bytes)}, but {size(room)} {where}"
    return None


def _demands(work: Work, needed: int, cases: tuple[Case, ...]) -> list[tuple[int, int | None, str]]:
    """Bytes, the room for them (None: not known) and what that is, for each memory or group of memories."""
    free, in_host = psutil.virtual_memory().available, "are free in this machine's memory"
    device, n_gpu_layers = work.accelerator, work.settings.n_gpu_layers
    if device is None or (work.spreads and n_gpu_layers == 0):
        return [(needed, free, in_host)]
    if not work.spreads:
        return [(needed, device.memory_bytes, f"are on the {device.name}")]
    sizes = [each.memory_bytes for each in work.accelerators]
    lent = None if None in sizes else sum(size for size in sizes if size)
    where = "are on the RPC tiers and this machine's GPUs" if work.settings.rpc else "are on this machine's GPUs"
    if n_gpu_layers == -1:
        kept = _kept_bytes(work, cases)
        return [(needed - kept, lent, where), (kept, free, in_host)]
    # How many layers fit where is the engine's to judge; all of them must lie somewhere.
    return [(needed, None if lent is None else lent + free, f"{where} and free in its memory")]


def _kept_bytes(work: Work, cases: tuple[Case, ...]) -> int:
    """What stays in the host's memory though all layers are elsewhere."""
    settings = work.settings
    kv_bytes = 0 if settings.kv_offload else _kv_bytes(work, cases)
    if not settings.n_cpu_moe:
        return kv_bytes
    weights = weights_of(work.source, work.roofline_format)
    n_layers = min(settings.n_cpu_moe, weights.architecture.n_layers)
    return kv_bytes + sum(weights.expert_bytes(layer) for layer in range(n_layers))
