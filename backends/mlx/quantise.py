"""A model in one of MLX's quantised formats, by mlx-lm's own rules of which layers they suit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx_lm.utils import quantize_model, save_config, save_model

from backends.mlx import formats, repeated, weights
from backends.mlx.errors import engine_errors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from backends.base import Repeated


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
    with engine_errors(f"mlx-lm cannot make {weight_format} of {source.name}", source):
        _write(*weights.open_model(source), target, weight_format)


def quantise_repeated(
    config: Mapping[str, Any], tensors: Mapping[str, Repeated], target: Path, weight_format: str
) -> None:
    """The same from tensors that are in no file: each is made when its turn comes.

    Args:
        config: as in a `config.json`.
        tensors: by Hugging Face's names.
        target: as for `quantise`.
        weight_format: as for `quantise`.

    Raises:
        BackendError: mlx-lm does not know the architecture.
        OutOfMemoryError: see `engine_errors`.
    """
    with engine_errors(f"mlx-lm cannot make {weight_format} of {config['model_type']}"):
        _write(*repeated.open_model(config, tensors), target, weight_format)


def _write(model: Any, config: dict[str, Any], target: Path, weight_format: str) -> None:
    model, config = quantize_model(model, config, *formats.parameters(weight_format))
    for array in weights.arrays(model.parameters()):
        mx.eval(array)  # one by one, so that no more than one is in memory unquantised
    save_model(target, model, donate_model=True)
    save_config(config, target / "config.json")
