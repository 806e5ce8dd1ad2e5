"""What an engine allocates beside the weights: the KV cache as it really lays it out, and room to compute in.

Sources: llama.cpp's `llama-kv-cache*.cpp` and `llama-context.cpp` for what it rounds up and reserves. How many vectors
are alive at once follows from no formula of an engine's; the factors below are those of llama.cpp's logged compute
buffers and of torch's profiler, for shapes that were varied one dimension at a time (`tests` repeat some of it).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from harness.roofline.architecture import Attention
from harness.roofline.checks import require
from harness.roofline.traffic import kv_cache_bytes

if TYPE_CHECKING:
    from harness.roofline.architecture import Architecture, FeedForward, Layer

_GATED = 3  # matrices of a feed-forward network with a gate


class Engine(ABC):
    """How an engine allocates."""

    cells: ClassVar[int]
    """It rounds each sequence's KV cache up to a multiple of so many tokens."""

    def kv_cache_bytes(
        self,
        arch: Architecture,
        context: int,
        batch: int = 1,
        k_element_bytes: float = 2,
        v_element_bytes: float | None = None,
        layers: range | None = None,
    ) -> int:
        """Of `batch` sequences of `context` tokens."""
        allocated, tokens = _as_allocated(arch, self), self._rounded_up(context)
        return batch * round(kv_cache_bytes(allocated, tokens, k_element_bytes, v_element_bytes, layers))

    @abstractmethod
    def workspace_bytes(self, arch: Architecture, context: int, batch: int = 1) -> int:
        """What it computes in, beside `batch` sequences of `context` tokens."""

    @abstractmethod
    def window_cells(self, window: int) -> int | None:
        """Tokens of a long context that a layer with this window holds; None: all of them."""

    def _rounded_up(self, tokens: int) -> int:
        return -(-tokens // self.cells) * self.cells


@dataclass(frozen=True)
class LlamaCpp(Engine):
    """llama.cpp with flash attention, which it chooses itself wherever it has the kernels.

    It computes `n_ubatch` tokens at a time in float32, and reserves logits for every one of them. Compared with the
    buffers that llama.cpp (llama-cpp-python 0.3.36) plans on a CPU for Llama, Qwen 3 (also with experts) and Gemma 3
    in their published sizes, contexts of 512 to 262144 tokens, `n_ubatch` of 64 to 2048, one and 8 sequences, f16 and
    q8_0 caches: KV cache equal; workspace within 5 %, the whole within 2 %. Not compared: GPUs, where the inputs
    lie on the host, kernels have scratch of their own, and a layer left on the host may be copied for a prefill;
    latent attention and recurrent layers; flash attention off, which adds `n_heads · n_ubatch · context` scores.
    """

    n_ubatch: int = 512
    cells: ClassVar[int] = 256

    def __post_init__(self) -> None:
        require("n_ubatch", self.n_ubatch, 1, 2**20)

    def window_cells(self, window: int) -> int:
        """The window and one more `n_ubatch`."""
        return self._rounded_up(window + self.n_ubatch)

    def workspace_bytes(self, arch: Architecture, context: int, batch: int = 1) -> int:
        """The compute buffer and the logits that are handed out.

        The larger of two moments: the LM head, with the logits of all tokens and two vectors of the model's width;
        and a feed-forward network, with the attention mask, in f16, still alive.
        """
        tokens = min(self.n_ubatch, self._rounded_up(context) * batch)
        head = 4 * (arch.vocab_size + 2 * arch.d_model)
        queries = max((a.n_heads * a.head_dim for a in _attentions(arch)), default=0)
        network = max(self._network_elements(layer.feed_forward, arch.d_model) for layer in arch.layers)
        body = 4 * (network + 3 * arch.d_model + queries) + 2 * self._mask_cells(arch, context)
        return tokens * max(head, body) + 4 * batch * arch.vocab_size

    def _network_elements(self, network: FeedForward, d_model: int) -> int:
        """Of one token: gate, up and their product; of experts also what each yields, before the sum."""
        dense = network.d_ff * (3 if network.n_matrices == _GATED else 1)
        routed = network.n_experts_used * max(3 * network.d_expert, network.d_expert + 2 * d_model)
        return max(dense, routed)

    def _mask_cells(self, arch: Architecture, context: int) -> int:
        """Keys that a query may see: one mask for the layers with a window, one for those without."""
        cells = self._rounded_up(context)
        windows = {a.window for a in _attentions(arch)}
        return sum(cells if w is None else min(cells, self.window_cells(w)) for w in windows)


@dataclass(frozen=True)
class Torch(Engine):
    """This project's torch backend: a cache of exactly the context, for every layer, and the whole prompt at once.

    Compared with the peak of torch's profiler on a CPU, bf16, prompts of 64 to 2048 tokens, for Llama, Qwen 3 (also
    with experts) and GPT-2: weights and KV cache equal, workspace within 3 %. Not compared: GPUs, where the allocator
    keeps what it has freed, and a compiled step and cuBLAS have scratch of their own; latent attention and recurrent
    layers.
    """

    prompt: int  # tokens of the longest prefill
    element_bytes: int = 2
    cells: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require("prompt", self.prompt, 1, 2**30)
        require("element_bytes", self.element_bytes, 1, 8)

    def window_cells(self, window: int) -> None:
        """It holds the whole context there too."""

    def workspace_bytes(self, arch: Architecture, context: int, batch: int = 1) -> int:
        """Activations of the prefill's widest moment, and the logits of each sequence's last token."""
        tokens = batch * min(self.prompt, context)
        widest = max(self._layer_elements(layer, arch.d_model) for layer in arch.layers)
        # Sines and cosines, of models without a learned table of positions.
        rotations = 0 if arch.position_embeddings else max((2 * a.head_dim for a in _attentions(arch)), default=0)
        return self.element_bytes * max(tokens * (widest + rotations), batch * (arch.vocab_size + arch.d_model))

    def _layer_elements(self, layer: Layer, d_model: int) -> int:
        """Of one token, at the widest of the moments in transformers' code: attention, dense network, experts."""
        network, attention = layer.feed_forward, layer.mixer
        if network.n_matrices != _GATED:  # its activation is computed step by step, in five pieces
            return 5 * network.d_ff + 2 * d_model
        routed = network.n_experts_used * max(4 * d_model, d_model + 4 * network.d_expert)
        widest = max(3 * network.d_ff, routed) + 4 * d_model
        if isinstance(attention, Attention):  # the queries are rotated in four pieces
            cached = attention.n_kv_heads * (attention.head_dim + attention.value_dim)
            widest = max(widest, 4 * attention.n_heads * attention.head_dim + cached + 3 * d_model)
        return widest


LLAMA_CPP = LlamaCpp()
"""llama.cpp as it is without flags."""


def _attentions(arch: Architecture) -> list[Attention]:
    return [layer.mixer for layer in arch.layers if isinstance(layer.mixer, Attention)]


@lru_cache
def _as_allocated(arch: Architecture, engine: Engine) -> Architecture:
    """The model as if its windows were as long as the cache that the engine allocates for them.

    Equal mixers become one object: `traffic` adds up each object once.
    """
    mixers = {layer.mixer: layer.mixer for layer in arch.layers}
    for mixer in mixers:
        if isinstance(mixer, Attention) and mixer.window is not None:
            mixers[mixer] = replace(mixer, window=engine.window_cells(mixer.window))
    return replace(arch, layers=tuple(replace(layer, mixer=mixers[layer.mixer]) for layer in arch.layers))
