"""A KV cache in llama.cpp, and the forward passes that extend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import BackendError
from backends.llama_cpp import engine_log, parameters
from backends.llama_cpp.batch import TokenBatch
from backends.llama_cpp.errors import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import Ids, LoadRequest
    from backends.llama_cpp.experts import Watch
    from backends.llama_cpp.model import Model


class Context:
    """One `llama_context`, empty; llama.cpp rounds each sequence up to a multiple of 256 tokens.

    Each sequence gets a stream of its own in the KV cache (`kv_unified` off), as in batched-bench.

    Args:
        model: of which it is.
        request: what is asked of it.
        context_tokens: of each sequence.
        batch: sequences.
        watch: told what it computes.

    Raises:
        OutOfMemoryError: it does not fit.
        BackendError: llama.cpp cannot make it.

    Attributes:
        buffers: its bytes, by buffer name and use.
        flash_attention: "on" or "off", as it came to be.
        n_batch: the most tokens of one call of `llama_decode`.
        n_ubatch: the most tokens that are computed at once.
    """

    def __init__(
        self, model: Model, request: LoadRequest, context_tokens: int, batch: int, watch: Watch | None = None
    ) -> None:
        self._model, self._llama, self._log = model, model.llama, model.log
        self._vocab_size = model.vocab_size
        self._watch = watch  # whose callback llama.cpp keeps
        self._params = parameters.of_context(self._llama, request, context_tokens, batch)
        if watch:
            self._params.cb_eval = watch.callback
        self._log.clear()
        self._handle = self._llama.llama_init_from_model(model.handle, self._params)
        if not self._handle:
            raise failure(f"{batch} x {context_tokens} tokens of context", self._log.take_errors())
        log = self._log.text()
        self.buffers = engine_log.buffer_bytes(log)
        self.flash_attention = engine_log.flash_attention(log)
        self.n_batch: int = self._llama.llama_n_batch(self._handle)
        self.n_ubatch: int = self._llama.llama_n_ubatch(self._handle)
        self._batch = TokenBatch(self.n_batch, batch)
        self._length = 0

    @property
    def allocated_tokens(self) -> int:
        """Tokens of a sequence that it has room for."""
        tokens: int = self._llama.llama_n_ctx_seq(self._handle)
        return tokens

    @property
    def settings(self) -> dict[str, Any]:
        """Those that can move a number."""
        params = self._params
        return {
            "n_batch": self.n_batch,
            "n_ubatch": self.n_ubatch,
            "n_threads_batch": params.n_threads_batch,
            "n_seq_max": params.n_seq_max,
            "kv_unified": params.kv_unified,
            "offload_kqv": params.offload_kqv,
            "op_offload": params.op_offload,
            "swa_full": params.swa_full,
            "no_perf": params.no_perf,
        }

    def cut(self, keep_tokens: int) -> int:
        """Forget what follows the first tokens of each sequence.

        Returns:
            How many were kept: none where a sliding window or a recurrent state has moved on and cannot be cut.
        """
        memory = self._llama.llama_get_memory(self._handle)
        self._length = min(keep_tokens, self._length)
        if self._length == 0 or not self._was_cut(memory, self._length):
            self._llama.llama_memory_clear(memory, False)
            self._length = 0
        return self._length

    def _was_cut(self, memory: int, keep: int) -> bool:
        # A sliding-window cache accepts any cut, also where the tokens before it have been overwritten.
        window = self._llama.llama_model_n_swa(self._model.handle)
        oldest_needed = max(0, keep - window)
        return all(
            self._llama.llama_memory_seq_pos_min(memory, sequence) <= oldest_needed
            and self._llama.llama_memory_seq_rm(memory, sequence, keep, -1)
            for sequence in range(self._params.n_seq_max)
        )

    def extend(self, tokens: Ids, outputs: NDArray[np.bool_], chunk: int) -> Iterator[tuple[int, int]]:
        """Put a text through the model, one sequence after the other, as batched-bench fills them.

        Args:
            tokens: `[batch, n]`.
            outputs: `[batch · n]`, whether a token's logits are wanted.
            chunk: tokens of one call of `llama_decode`.

        Yields:
            For each token of the flattened `tokens` whose logits are wanted: its index, and its row in the
            batch that has just been computed.
        """
        n = tokens.shape[1]
        self._require_room(n)
        flat = tokens.reshape(-1)
        sequences, positions = np.divmod(np.arange(flat.size), n)
        positions = (positions + self._length).astype(np.int32)
        for start in range(0, flat.size, chunk):
            part = slice(start, start + chunk)
            self._batch.fill(flat[part], positions[part], sequences[part], outputs[part])
            self._decode()
            for row in np.flatnonzero(outputs[part]):
                yield start + int(row), int(row)
        self._length += n

    def steps(self, tokens: Ids) -> Iterator[None]:
        """One `llama_decode` a step, all sequences in it: their rows are those of the batch.

        Args:
            tokens: `[batch, steps]`.
        """
        batch, steps = tokens.shape
        self._require_room(steps)
        by_step = np.ascontiguousarray(tokens.T)
        self._batch.fill(
            by_step[0],
            positions=np.full(batch, self._length, np.int32),
            sequences=np.arange(batch),
            outputs=np.ones(batch, np.bool_),
        )
        for step in range(steps):
            if step:
                self._batch.advance(by_step[step])
            self._decode()
            self._length += 1
            yield

    def logits_row(self, row: int) -> NDArray[np.float32]:
        """A view of the logits of one token of the batch; waits for the device."""
        pointer = self._llama.llama_get_logits_ith(self._handle, row)
        return np.ctypeslib.as_array(pointer, (self._vocab_size,))

    def free(self) -> None:
        """Give its memory back."""
        self._llama.llama_free(self._handle)

    def _decode(self) -> None:
        status = self._llama.llama_decode(self._handle, self._batch.struct)
        if status == 1:
            raise BackendError(f"llama.cpp found no room in its KV cache for {self._batch.struct.n_tokens} tokens")
        if status != 0:
            raise failure(f"llama_decode returned {status}", self._log.take_errors())

    def _require_room(self, n: int) -> None:
        room = self.allocated_tokens - self._length
        if n > room:
            raise BackendError(f"{n} tokens do not fit: the KV cache has room for {room} more a sequence")
