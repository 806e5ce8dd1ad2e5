"""The worker's side: the engine writes, and what has grown on the disk is told meanwhile."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from backends.registry import BACKENDS
from harness.growth import watched
from harness.models import gguf_export, synthesis
from harness.models.presets import PRESETS
from harness.models.weights_id import SEED

if TYPE_CHECKING:
    from collections.abc import Callable


def quantise(
    backend: str, source: str, target: str, weight_format: str, n_threads: int, grown: Callable[[int], None]
) -> None:
    """Have an engine write `target`.

    Args:
        backend: its name.
        source: path of a Hugging Face directory or a .gguf file.
        target: path of the new one, of the same kind.
        weight_format: the engine's own name of it.
        n_threads: that it computes with.
        grown: called with the bytes on the disk, whenever there are more.

    Raises:
        BackendError: the engine cannot.
    """
    engine = importlib.import_module(f"{BACKENDS[backend].module}.quantise")
    with watched(Path(target), grown):
        engine.quantise(Path(source), Path(target), weight_format, n_threads)


def synthesise(
    backend: str, preset: str, name: str, target: str, weight_format: str, n_threads: int, grown: Callable[[int], None]
) -> None:
    """Have an engine quantise a preset's weights tensor by tensor, so that the model is never on the disk as a whole.

    Args:
        backend: its name.
        preset: whose weights.
        name: what the file calls the model.
        target: path of the new file or directory: what `quantise` would make of the preset's.
        weight_format: the engine's own name of it.
        n_threads: that it computes with.
        grown: called with the bytes on the disk, whenever there are more.

    Raises:
        BackendError: the engine cannot.
    """
    config = PRESETS[preset]
    engine = importlib.import_module(f"{BACKENDS[backend].module}.quantise")
    with watched(Path(target), grown):
        if BACKENDS[backend].artifact == "gguf":
            quantiser = gguf_export.Quantiser(engine.quantise_rows, n_threads)
            checkpoint = gguf_export.synthetic(name, config, SEED)
            gguf_export.write(checkpoint, Path(target), weight_format, quantiser=quantiser)
        else:
            tensors = synthesis.SyntheticWeights(config, SEED).tensors()
            engine.quantise_repeated(synthesis.synthetic_config(config, SEED), tensors, Path(target), weight_format)
