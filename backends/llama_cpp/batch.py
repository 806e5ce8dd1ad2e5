"""A `llama_batch` over numpy arrays, so that filling it makes no Python object a token."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Ids


class TokenBatch:
    """Room for `capacity` tokens, each of which belongs to one of `sequences` sequences.

    `struct` is the `llama_batch` that `llama_decode` takes: its pointers lead into the arrays of this object.
    """

    def __init__(self, capacity: int, sequences: int) -> None:
        from llama_cpp import llama_batch

        # llama.cpp wants a list of sequence ids for each token: here a pointer to the one id it has.
        self._sequence_ids = np.arange(sequences, dtype=np.int32)
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._n_sequences = np.ones(capacity, np.int32)
        self._sequence = np.zeros(capacity, np.uintp)
        self._output = np.zeros(capacity, np.int8)
        self.struct = llama_batch()
        for field, array in (
            ("token", self._token),
            ("pos", self._position),
            ("n_seq_id", self._n_sequences),
            ("seq_id", self._sequence),
            ("logits", self._output),
        ):
            setattr(self.struct, field, _pointer(array, type(getattr(self.struct, field))))

    def fill(
        self, tokens: Ids, positions: Ids, sequences: NDArray[np.integer[Any]], outputs: NDArray[np.bool_]
    ) -> None:
        """Set every field of the first `n` tokens.

        Args:
            tokens: `[n]`, at most the capacity.
            positions: `[n]`, of each token in its sequence.
            sequences: `[n]`, the number of each token's sequence.
            outputs: `[n]`, whether the token's logits are wanted.
        """
        n = self.struct.n_tokens = len(tokens)
        self._token[:n] = tokens
        self._position[:n] = positions
        self._sequence[:n] = self._sequence_ids.ctypes.data + sequences * self._sequence_ids.itemsize
        self._output[:n] = outputs

    def advance(self, tokens: Ids) -> None:
        """Replace the tokens by those that follow them: everything else stays, but for the position.

        Args:
            tokens: `[n]`, as many as were filled in.
        """
        n = self.struct.n_tokens
        self._token[:n] = tokens
        self._position[:n] += 1


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, kind)
