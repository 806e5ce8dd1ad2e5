"""Of which works the quality is measured, and against which others: the same engine with all bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.models.artifact_weights import is_plain

if TYPE_CHECKING:
    from harness.work import Work

UNQUANTISED = frozenset({"auto", "f32", "f16", "bf16"})
"""Formats of a KV cache."""

_QUANTISED_KIND = "quantized"  # of transformers' caches; its format is then its own choice
_RANDOM = "the weights are random: the change would be that of their initialisation"


@dataclass(frozen=True)
class Question:
    """How far are a work's answers from those of its like without what quantises it?"""

    quantised: Work
    unquantised: Work

    @property
    def is_of_weights(self) -> bool:
        """Whether the weights are what differs, or else the KV cache."""
        return self.quantised.settings.weights != self.unquantised.settings.weights


def of_weights(work: Work) -> Question | str:
    """What the weights' bits cost, whatever the KV cache is; or why that is not measured."""
    if not work.is_quantised_here:
        if work.source.quantised_by or _is_quantised_file(work):
            return "the weights were quantised by others, and their unquantised original is not known"
        return "the weights are not quantised"
    if work.source.weights_origin != "trained":
        return _RANDOM
    full_cache = _with_full_cache(work)
    settings = replace(full_cache.settings, weights=work.original_weights)
    return Question(full_cache, replace(full_cache, settings=settings))


def of_kv_cache(work: Work) -> Question | str:
    """What the KV cache's bits cost, whatever the weights are; or why that is not measured."""
    settings = work.settings
    formats = {settings.kv_k_format, settings.kv_v_format}
    if settings.cache_kind != _QUANTISED_KIND and formats <= UNQUANTISED:
        return "the KV cache is not quantised"
    if work.source.weights_origin != "trained":
        return _RANDOM
    return Question(work, _with_full_cache(work))


def _with_full_cache(work: Work) -> Work:
    kind = work.settings.cache_kind
    settings = replace(
        work.settings,
        kv_k_format="auto",
        kv_v_format="auto",
        cache_kind="auto" if kind == _QUANTISED_KIND else kind,
    )
    return replace(work, settings=settings)


def _is_quantised_file(work: Work) -> bool:
    """Whether a .gguf file holds anything but plain numbers; what quantised a directory, its configuration says."""
    path = work.source.path
    if work.source.origin != "gguf" or path is None:
        return False
    return not is_plain(path)
