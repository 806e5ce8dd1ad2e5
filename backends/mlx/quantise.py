"""A Hugging Face directory in one of MLX's quantised formats, by mlx-lm's own rules of which layers they suit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from mlx_lm.utils import quantize_model, save_config, save_model

from backends.mlx import formats, weights
from backends.mlx.errors import engine_errors

if TYPE_CHECKING:
    from pathlib import Path


def quantise(source: Path, target: Path, weight_format: str, n_threads: int) -> None:  # noqa: ARG001 MLX takes none
    """Write `source` anew with the weights of its linear layers and embeddings in another format.

    Args:
        source: a Hugging Face directory in f32, f16 or bf16.
        target: the new directory; after an error it is incomplete.
        weight_format: one of `formats.formats`. A layer whose rows its groups do not divide stays as it is, and mlx-lm
            has its own mind about some, as routers.
        n_threads: MLX takes its own number.

    Raises:
        BackendError: mlx-lm does not know the architecture, or a file is damaged.
        OutOfMemoryError: see `engine_errors`.
    """
    group_size, bits, mode = formats.parameters(weight_format)
    with engine_errors(f"mlx-lm cannot make {weight_format} of {source.name}", source):
        model, config = weights.open_model(source)
        model, config = quantize_model(model, config, group_size, bits, mode)
        for array in weights.arrays(model.parameters()):
            mx.eval(array)  # one by one, so that no more than one is in memory unquantised
        save_model(target, model, donate_model=True)
        save_config(config, target / "config.json")
