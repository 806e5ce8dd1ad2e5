"""What is exported: a model in Hugging Face's names, read from its directory or made tensor by tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes

from harness.models import tokenizer
from harness.models.gguf_export.tokenizer_json import read
from harness.models.hf_config import read_config
from harness.models.safetensors_file import open_tensor, tensor_table
from harness.models.synthesis import SyntheticWeights, synthetic_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from harness.models.gguf_export.config import Config
    from harness.models.gguf_export.tokenizer_json import Document
    from harness.models.safetensors_file import TensorEntry
    from harness.models.tensors import TensorSpec

_PIECE_ELEMENTS = 2**20  # made at once: 2 MiB


class Tensor(Protocol):
    """One tensor of a checkpoint."""

    @property
    def dtype(self) -> str:
        """As safetensors names it: "BF16"."""

    @property
    def shape(self) -> tuple[int, ...]:
        """As in Hugging Face's model."""

    @property
    def origin(self) -> str:
        """Where it comes from, for messages."""

    def pieces(self, together: int) -> Sequence[Callable[[], NDArray[Any]]]:
        """What opens its rows, some after the others.

        Args:
            together: so many rows, or a multiple of them, must be in one piece.
        """


@dataclass(frozen=True)
class Checkpoint:
    """A model whose tensors are not read yet.

    Attributes:
        name: what the file calls it.
        config: as in `config.json`.
        tokenizer: as in `tokenizer.json`; None where there is none.
        tensors: by name.
    """

    name: str
    config: Config
    tokenizer: Document | None
    tensors: Mapping[str, Tensor]


def of_directory(directory: Path) -> Checkpoint:
    """The model of a Hugging Face directory.

    Raises:
        UserError: a file is missing or damaged.
    """
    config = read_config(directory)
    tensors = {name: _Stored(entry) for name, entry in tensor_table(directory).items()}
    return Checkpoint(directory.name, config, read(directory / "tokenizer.json"), tensors)


def synthetic(name: str, config: Config, seed: int) -> Checkpoint:
    """The model that `synthesis.synthesise` would write into a directory of this name.

    Raises:
        ValueError: a family or a vocabulary that cannot be synthesised.
    """
    weights = SyntheticWeights(config, seed)
    tensors = {spec.name: _Synthetic(spec, weights) for spec in weights.specs}
    return Checkpoint(name, synthetic_config(config, seed), tokenizer.document(config), tensors)


@dataclass(frozen=True)
class _Stored:
    entry: TensorEntry

    @property
    def dtype(self) -> str:
        return self.entry.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.shape

    @property
    def origin(self) -> str:
        return str(self.entry.path)

    def pieces(self, together: int) -> Sequence[Callable[[], NDArray[Any]]]:
        del together  # pages of a file are read as they are used, so one piece will do
        return [partial(open_tensor, self.entry)]


@dataclass(frozen=True)
class _Synthetic:
    spec: TensorSpec
    weights: SyntheticWeights
    dtype: str = "BF16"
    origin: str = "synthetic weights"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    def pieces(self, together: int) -> Sequence[Callable[[], NDArray[Any]]]:
        n_rows = self.shape[0]
        step = together * max(1, _PIECE_ELEMENTS // (together * math.prod(self.shape[1:])))
        return [partial(self._rows, first, min(step, n_rows - first)) for first in range(0, n_rows, step)]

    def _rows(self, first: int, count: int) -> NDArray[Any]:
        length = math.prod(self.shape[1:])
        elements = self.weights.elements(self.spec, first * length, count * length)
        rows: NDArray[Any] = elements.view(ml_dtypes.bfloat16).reshape(count, *self.shape[1:])
        return rows
