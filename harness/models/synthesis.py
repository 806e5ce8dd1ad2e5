"""Random weights in a real architecture's shape: decode speed depends on their bytes, not on their values.

The values still matter for one thing: two engines must agree on the logits if, and only if, they compute
the same function of the same weights. So the scales below keep a deep network calm in bfloat16 and yet let
each part of it weigh on the logits; a wrong layout, a missing bias or a wrong RoPE shows.

Drawing normal numbers for every weight is slower than a disk. One seeded pool is drawn instead, and each
tensor is the pool repeated, from a place of its own, at a scale of its own. The pool's length is prime, so
no two rows of a matrix start at the same place of the pool.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from backends.base import Repeated
from harness.models import tokenizer
from harness.models.cache import written_whole
from harness.models.safetensors_file import INDEX_NAME, StreamWriter
from harness.models.tensors import Role, TensorSpec, tensor_specs
from harness.roofline.hf_config import from_hf_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

VERSION = 1
"""Goes up whenever the same configuration and seed give other weights than before."""

ELEMENT_BYTES = 2  # bfloat16

SYNTHETIC_KEY = "tokenroof_synthetic"  # in config.json: the seed
GGUF_SYNTHETIC_KEY = "tokenroof.synthetic"  # in a GGUF file exported from it
"""In `config.json`: the seed of the weights, which are not trained."""

# Transformers suspects the tokenizers of models older than this of a known mistake, and warns.
_TRANSFORMERS_VERSION = "5.0.0"

_POOL_ELEMENTS = 1_048_573  # the largest prime below 2**20: 2 MiB a scale
_SHARD_BYTES = 4 * 10**9

_LOGIT_STD = 2.5
# Queries and keys of this deviation give attention scores of 2.5: sharp enough that a few tokens out of
# thousands decide, so that RoPE's phase far out shows in the logits.
_QUERY_KEY_STD = 1.58
# Additions of all layers to the residual stream, relative to the embedding. More, and bfloat16's rounding
# grows from layer to layer; less, and a skipped layer hardly shows.
_ATTENTION_STD = 1.6
_MLP_STD = 0.6
_ACTIVATION_RMS = 0.6  # of silu(gate) * up, and nearly of gelu, for unit normal inputs
# A sharp router: where rounding swaps the last expert chosen for the next one, little weight changes hands.
_ROUTER_STD = 3.0


class Distribution(NamedTuple):
    """Of one tensor's values; nearly normal."""

    mean: float
    std: float


def synthesise(
    config: Mapping[str, Any],
    directory: Path,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a Hugging Face model directory: configuration, tokenizer, sharded bfloat16 safetensors.

    Bit-identical on every machine for the same configuration and seed. Needs a few tens of MB of memory
    whatever the model's size. The directory appears under its name only when it is complete.

    Args:
        config: as in a `config.json`.
        directory: must not exist yet.
        seed: of the pool.
        progress: called with `(done_bytes, total_bytes)` after each piece written.

    Raises:
        ValueError: a family or a vocabulary that cannot be synthesised.
    """
    weights = SyntheticWeights(config, seed)
    shards = _shards(weights.specs)
    total = sum(_n_bytes(spec) for spec in weights.specs)
    done = 0
    with written_whole(directory) as partial:
        partial.mkdir()
        weight_map: dict[str, str] = {}
        for i, shard in enumerate(shards, start=1):
            file_name = f"model-{i:05}-of-{len(shards):05}.safetensors"
            shapes = {spec.name: spec.shape for spec in shard}
            with StreamWriter(partial / file_name, "BF16", shapes) as writer:
                for spec in shard:
                    for piece in weights.pieces(spec):
                        writer.write(piece.data)
                        done += piece.nbytes
                        if progress is not None:
                            progress(done, total)
            weight_map |= {spec.name: file_name for spec in shard}
        _write_json(partial / INDEX_NAME, {"metadata": {"total_size": total}, "weight_map": weight_map})
        _write_json(partial / "config.json", synthetic_config(config, seed))
        tokenizer.write_hf(partial, config)


def synthetic_config(config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The configuration as it stands beside the weights, and says that they are synthetic."""
    return {**config, SYNTHETIC_KEY: seed, "transformers_version": _TRANSFORMERS_VERSION}


class SyntheticWeights:
    """The numbers of every tensor that a configuration calls for, made when they are asked for.

    It holds the pool at every scale that the model needs: a few tens of MB.

    Attributes:
        specs: of the tensors, in the order of the forward pass.

    Raises:
        ValueError: a family that cannot be synthesised.
    """

    def __init__(self, config: Mapping[str, Any], seed: int) -> None:
        self.specs = tensor_specs(config)
        arch = from_hf_config(config)
        self._n_layers = arch.n_layers
        # A tied embedding is the LM head too, and must give the logits their deviation.
        self._embedding_std = _LOGIT_STD / math.sqrt(arch.d_model) if arch.tied_embeddings else 1.0
        self._unit = _unit_pool(seed)
        self._scaled = functools.cache(self._scale)

    def pieces(self, spec: TensorSpec) -> Iterator[NDArray[np.uint16]]:
        """All of a tensor's `elements`, in pieces no longer than the pool."""
        n_elements = math.prod(spec.shape)
        for first in range(0, n_elements, _POOL_ELEMENTS):
            yield self.elements(spec, first, min(_POOL_ELEMENTS, n_elements - first))

    def elements(self, spec: TensorSpec, first: int, count: int) -> NDArray[np.uint16]:
        """So many of a tensor's elements in C order, from the one with this index: the bits of bfloat16."""
        tensor = self.tensor(spec)
        return np.resize(np.roll(tensor.pool, -tensor.start - first), count)

    def tensors(self) -> dict[str, Repeated]:
        """Every tensor by its name."""
        return {spec.name: self.tensor(spec) for spec in self.specs}

    def tensor(self, spec: TensorSpec) -> Repeated:
        """All elements of a tensor, without making them."""
        pool = self._scaled(distribution(spec, self._n_layers, self._embedding_std))
        digest = hashlib.sha256(spec.name.encode()).digest()
        return Repeated(pool, int.from_bytes(digest[:8], "little") % _POOL_ELEMENTS, spec.shape)

    def _scale(self, target: Distribution) -> NDArray[np.uint16]:
        values = self._unit * np.float32(target.std) + np.float32(target.mean)
        return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def _unit_pool(seed: int) -> NDArray[np.float32]:
    """Nearly normal numbers of mean 0 and deviation 1, within 3.5 deviations.

    Four 16-bit words are summed: numpy promises the raw bits of a generator for ever, but not its normal
    numbers.
    """
    words = np.random.PCG64(seed).random_raw(_POOL_ELEMENTS).view(np.uint16).reshape(_POOL_ELEMENTS, 4)
    centred = words.sum(axis=1, dtype=np.int32) - 2 * 0xFFFF
    std_of_sum = 0x10000 / math.sqrt(3)  # four uniform words, each of variance 2**32 / 12
    pool: NDArray[np.float32] = centred.astype(np.float32) / np.float32(std_of_sum)
    return pool


def distribution(spec: TensorSpec, n_layers: int, embedding_std: float) -> Distribution:
    """The values of one tensor, from its role.

    With unit inputs, a weight of deviation `1 / sqrt(fan_in)` gives unit outputs. What is added to the
    residual stream is relative to the embedding, and shrinks with the square root of the number of
    additions.
    """
    unit = 1 / math.sqrt(spec.fan_in)
    residual = embedding_std * unit / math.sqrt(2 * n_layers)
    # Gemma's, which multiplies its embedding by the root of the width.
    residual_norm = embedding_std * math.sqrt(spec.shape[0] / (2 * n_layers))
    mean, std = {
        Role.EMBEDDING: Distribution(0.0, embedding_std),
        Role.LM_HEAD: Distribution(0.0, _LOGIT_STD * unit),
        Role.NORM: Distribution(1.0, 0.2),
        # Of either sign: else a tied LM head sees its own embedding again, and every token predicts itself.
        Role.FINAL_NORM: Distribution(0.0, 1.0),
        Role.QK_NORM: Distribution(_QUERY_KEY_STD, 0.3),
        Role.RESIDUAL_NORM: Distribution(residual_norm, 0.2 * residual_norm),
        Role.ATTENTION_INPUT: Distribution(0.0, _QUERY_KEY_STD * unit),
        Role.ATTENTION_OUTPUT: Distribution(0.0, _ATTENTION_STD / _QUERY_KEY_STD * residual),
        Role.NORMED_OUTPUT: Distribution(0.0, unit),
        Role.ROUTER: Distribution(0.0, _ROUTER_STD * unit),
        Role.MLP_INPUT: Distribution(0.0, unit),
        Role.MLP_OUTPUT: Distribution(0.0, _MLP_STD / _ACTIVATION_RMS * residual),
        Role.BIAS: Distribution(0.0, 1.0),
        Role.RESIDUAL_BIAS: Distribution(0.0, 0.3 * embedding_std),
    }[spec.role]
    return Distribution(mean - spec.added, std)


def _shards(specs: Sequence[TensorSpec]) -> list[list[TensorSpec]]:
    """Consecutive tensors, in files of at most `_SHARD_BYTES` (or one larger tensor)."""
    shards: list[list[TensorSpec]] = [[]]
    size = 0
    for spec in specs:
        if shards[-1] and size + _n_bytes(spec) > _SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(spec)
        size += _n_bytes(spec)
    return shards


def _n_bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * ELEMENT_BYTES


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
