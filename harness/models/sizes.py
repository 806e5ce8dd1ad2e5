"""How large a model is, and in which format its numbers are: from its files, or from its shape."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.models.artifact_weights import stored_bytes, weights_of
from harness.roofline.nominal import PLAIN

if TYPE_CHECKING:
    from harness.models.source import ModelSource

NATIVE_FORMAT = "bf16"
"""Of synthetic weights, and of an export that states none."""


def weight_bytes(source: ModelSource, weight_format: str | None) -> int:
    """Bytes of all weights in this format; None: as they are.

    Raises:
        UserError: as `weights_of`.
    """
    return weights_of(source, weight_format).n_bytes


def native_format(source: ModelSource) -> str:
    """The plain format that most of a model's bytes have, in which an export rounds nothing."""
    sizes = stored_bytes(source.path) if source.path else Counter[str]()
    most = next((name.lower() for name, _ in sizes.most_common(1)), NATIVE_FORMAT)
    return most if most in PLAIN else NATIVE_FORMAT


def n_params(source: ModelSource) -> int:
    """Weights of the model: counted from its shape for a preset, from its files' tensors otherwise."""
    return weights_of(source, None).n_params
