"""Clauses on what a session tells of itself: facts, memory, experts; and on its end."""

from __future__ import annotations

import json
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.conformance.requirements import require, require_argmax, require_known_or_explained
from backends.conformance.texts import SHORT, drawn_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.base import Session


def facts_before_allocation(session: Session, _: float) -> None:
    """Facts are valid after load, with no room in the KV cache yet."""
    _check_facts(session)
    require(session.vocab_size > 0, f"vocab_size is {session.vocab_size}")
    allocated = session.facts().kv_allocated_tokens
    require(allocated == 0, f"kv_allocated_tokens is {allocated} before allocate")


def facts_are_sane(session: Session, _: float) -> None:
    """Facts after a run, with a KV cache and without: counts are positive, and every None has its reason."""
    tokens = drawn_tokens(session, batch=1, n=4)
    session.allocate(SHORT, batch=1)
    session.prefill(tokens)
    _check_facts(session)
    session.allocate(SHORT, batch=1, kv_cache=False)
    list(session.recompute(tokens, 4))
    _check_facts(session)


def memory_is_sane(session: Session, _: float) -> None:
    """Memory after a prefill: positive, or None with its reason; a token takes at least one byte of cache."""
    session.allocate(SHORT, batch=2)
    session.prefill(drawn_tokens(session, batch=2, n=4))
    memory = session.memory()
    for name, minimum in (("peak_device_bytes", 1), ("kv_cache_bytes", 2 * SHORT)):
        value = getattr(memory, name)
        require_known_or_explained(name, value, memory.unavailable)
        require(value is None or value >= minimum, f"{name} is {value}")


def experts_are_counted_or_not_told(session: Session, tolerance: float) -> None:
    """`experts_hit` is None or counts `[steps, layers]`: equal sequences read no more than one; then all goes on."""
    tokens = drawn_tokens(session, batch=1, n=9)
    several = np.concatenate([tokens, tokens, drawn_tokens(session, batch=3, n=9)])
    alone, alike, together = (session.experts_hit(text, 4) for text in (tokens, several[:2], several))
    if alone is not None and alike is not None and together is not None:
        require(alone.ndim == 2 and len(alone) == 5 and alone.size > 0, f"5 steps gave counts {alone.shape}")
        require(bool((alone >= 1).all()), f"a step reads {alone.min()} experts of a layer")
        require(bool((alone == alike).all()), "two equal sequences read other experts than one")
        require(bool((together >= alone).all()), "five sequences read fewer experts than one of them")
    require((alone is None) == (alike is None) == (together is None), "it tells once, and then does not")
    session.allocate(SHORT, batch=1)
    expected = session.logits(tokens)
    session.reset()
    require_argmax(session.prefill(tokens), expected[:, -1], tolerance)


def closing_raises_nothing(session: Session, _: float) -> None:
    """`close` ends a session that still holds tokens."""
    session.allocate(SHORT, batch=1)
    session.prefill(drawn_tokens(session, batch=1, n=4))
    session.close()


def _check_facts(session: Session) -> None:
    facts = session.facts()
    for name in ("backend_version", "engine_build", "engine_mode", "device", "weight_format"):
        require(bool(getattr(facts, name)), f"{name} is empty")
    for name in ("n_params", "weight_bytes"):
        value = getattr(facts, name)
        require(value > 0, f"{name} is {value}")
    if (held := session.held()) is not None:
        sums = (sum(module.n_params for module in held), sum(module.n_bytes for module in held))
        require(sums == (facts.n_params, facts.weight_bytes), f"modules hold {sums} parameters and bytes in all")
    # On a CPU the harness names the device and its memory: it knows them better than any engine.
    device = () if facts.device == "cpu" else ("device_name", "device_memory_bytes")
    for name in ("n_threads", "flash_attn", *device):
        require_known_or_explained(name, getattr(facts, name), facts.unavailable)
    require(facts.gpu_layers_effective >= 0, f"gpu_layers_effective is {facts.gpu_layers_effective}")
    settings = json.loads(json.dumps(facts.engine_settings))
    for text in _strings(settings):
        for word in text.split():
            absolute = PurePosixPath(word).is_absolute() or PureWindowsPath(word).is_absolute()
            require(not absolute, f"engine_settings holds the path {word}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
