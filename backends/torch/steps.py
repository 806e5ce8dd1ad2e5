"""One decode step with fixed shapes, for a compiler or a CUDA graph.

The step takes everything that changes from a tensor on the device: which forced input is next, where in the KV
cache it goes, how much of the cache is in use. So the host only has to say "again", and can say it before the step
before is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.torch.attention import KvCache

    # tokens [batch, 1], position ids [1, 1], mask [1, 1, 1, capacity] -> logits [batch, 1, vocab]
    Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_TUNED_ABOVE_BYTES = 2**30


class StaticStep:
    """A forward pass of the next forced token of each sequence, its argmax, and the move to the next position.

    Args:
        forward: The model's.
        cache: Whose buffers the step reads and writes.
        batch: Sequences.
        spare: A slot of the cache that no token has taken yet: runs that only compile or warm up write there.
        device: Where all of it lies.

    Attributes:
        ids: int32 `[batch]` on the device: the last step's argmax, overwritten by the next.
        run: Enqueues one step.
    """

    def __init__(self, forward: Forward, cache: KvCache, batch: int, spare: int, device: torch.device) -> None:
        self._forward = forward
        self._cache = cache
        self._spare = spare
        self._inputs = torch.zeros(batch, cache.capacity, dtype=torch.int64, device=device)
        self._next_input = torch.zeros(1, dtype=torch.int64, device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._slots = torch.arange(cache.capacity, device=device)
        self.ids = torch.zeros(batch, dtype=torch.int32, device=device)
        self.run: Callable[[], None] = self._step

    @torch.inference_mode()
    def begin(self, tokens: torch.Tensor, position: int) -> None:
        """Set the forced inputs `[batch, steps]` and the position of the first."""
        self._inputs[:, : tokens.shape[1]].copy_(tokens)
        self._next_input.zero_()
        self._position.fill_(position)

    def compile(self, weight_bytes: int) -> None:
        """Compile the step, and run it so that nothing is left to compile later.

        Raises:
            Exception: whatever the compiler raises; the step is then as it was.
        """
        # Earlier allocations' shapes are done with; kept, they would count against dynamo's limit of recompilations.
        torch._dynamo.reset()  # noqa: SLF001  (the only name torch gives it)
        options = inductor_options(weight_bytes)
        compiled = torch.compile(self._step, fullgraph=True, dynamic=False, options=options)
        for _ in range(2):
            self._rewind()
            compiled()
        self.run = compiled
        self._rewind()

    def capture(self) -> None:
        """Capture the step in a CUDA graph, as torch's notes on CUDA graphs say: warm up on a side stream first.

        Raises:
            RuntimeError: the step does something that a graph cannot hold; the step is then as it was.
        """
        stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # cuBLAS workspaces, lazily loaded kernels and autotuning
                self._rewind()
                self.run()
        torch.cuda.current_stream().wait_stream(stream)
        self._rewind()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run()
        self.run = graph.replay
        self._rewind()

    def _step(self) -> None:
        tokens = self._inputs.index_select(1, self._next_input)
        mask = (self._slots <= self._position).view(1, 1, 1, -1)
        self._cache.slot = self._position
        try:
            logits = self._forward(tokens, self._position.view(1, 1), mask)
        finally:  # a step that fails must not leave the next prefill with a fixed shape
            self._cache.slot = None
        self.ids.copy_(logits[:, -1].argmax(-1))
        self._next_input.add_(1)
        self._position.add_(1)

    def _rewind(self) -> None:
        self._next_input.zero_()
        self._position.fill_(self._spare)


def inductor_options(weight_bytes: int) -> dict[str, str | int | bool | Callable[..., Any]]:
    """What inductor is told: to tune the kernels of a model whose step streams gigabytes.

    Coordinate descent also turns a matrix-vector product into a generated reduction, which reaches a higher
    bandwidth than a library's product of one row (inductor's decomposition of `mm`; gpt-fast sets the same). It
    tries every kernel in many shapes, a minute in all, too long for a model that is small.
    """
    return {"coordinate_descent_tuning": weight_bytes > _TUNED_ABOVE_BYTES}
