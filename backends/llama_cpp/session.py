"""One GGUF model with one KV cache, behind the backend contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from backends.base import BackendError, Session
from backends.llama_cpp import experts, facts
from backends.llama_cpp.context import Context
from backends.llama_cpp.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import Facts, Ids, LoadRequest, Logits, Memory


class LlamaCppSession(Session):
    """A loaded model, and its context since the last `allocate`."""

    def __init__(self, request: LoadRequest) -> None:
        self._request = request
        self._model = Model(request)
        self._context: Context | None = None

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary."""
        return self._model.vocab_size

    @property
    def max_context(self) -> int | None:
        """The context length that the file states."""
        return self._model.max_context

    def allocate(self, context_tokens: int, batch: int, *, kv_cache: bool = True) -> None:  # noqa: ARG002
        """Make a new `Context`: llama.cpp attends through its cache, so there is one in any case."""
        if batch > self._request.n_batch:
            raise BackendError(f"{batch} sequences need a batch of as many tokens: -b is {self._request.n_batch}")
        self._allocate(context_tokens, batch)

    def _allocate(self, context_tokens: int, batch: int, watch: experts.Watch | None = None) -> None:
        self._free_context()
        self._context = Context(self._model, self._request, context_tokens, batch, watch)

    def reset(self, keep_tokens: int = 0) -> int:
        """Cut the KV cache; a sliding window or a recurrent state that has moved on cannot be cut, then 0."""
        return self._allocated().cut(keep_tokens)

    def prefill(self, tokens: Ids) -> Ids:
        """Chunks of `n_batch` tokens."""
        context, (batch, n) = self._allocated(), tokens.shape
        is_last = np.arange(tokens.size) % n == n - 1
        ids = np.empty(batch, np.int32)
        for index, row in context.extend(tokens, is_last, context.n_batch):
            ids[index // n] = context.logits_row(row).argmax()
        return ids

    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """One `llama_decode` a step, all sequences in it."""
        context, batch = self._allocated(), len(tokens)
        ids = np.empty(batch, np.int32)
        for _ in context.steps(tokens):
            for row in range(batch):
                ids[row] = context.logits_row(row).argmax()
            yield ids

    def logits(self, tokens: Ids) -> Logits:
        """Like prefill, in chunks of `n_ubatch`: llama.cpp keeps room for every logit of a chunk."""
        context, (batch, n) = self._allocated(), tokens.shape
        logits = np.empty((batch * n, self.vocab_size), np.float32)
        for index, row in context.extend(tokens, np.ones(batch * n, np.bool_), context.n_ubatch):
            logits[index] = context.logits_row(row)
        return logits.reshape(batch, n, -1)

    def experts_hit(self, tokens: Ids, first: int) -> NDArray[np.int64] | None:
        """In a context of its own, which has llama.cpp tell what it computes."""
        watch = experts.Watch(self._model.llama)
        try:
            batch, n = tokens.shape
            self._allocate(n, batch, watch)
            if first:
                self.prefill(tokens[:, :first])
            watch.on = True
            counts = [watch.take() for _ in self.decode(tokens[:, first:])]
        finally:
            self._free_context()
        return np.array(counts) if counts[0].size else None

    def facts(self) -> Facts:
        """Read from the loaded file and the engine's log."""
        return facts.facts(self._request, self._model, self._context)

    def memory(self) -> Memory:
        """Of the buffers in the engine's log."""
        return facts.memory(self._model, self._context)

    def close(self) -> None:
        """Free the context and the model."""
        self._free_context()
        self._model.close()

    def _allocated(self) -> Context:
        if self._context is None:
            raise BackendError("no KV cache is allocated")
        return self._context

    def _free_context(self) -> None:
        if self._context:
            self._context.free()
        self._context = None
