"""What a token moves and computes: parameters, KV cache bytes, FLOPs. Everything can be checked with a pencil."""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from harness.roofline.architecture import Attention
from harness.roofline.parts import WHOLE, Part
from harness.roofline.weights import Use, tensors_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from harness.roofline.architecture import Architecture, Recurrent

_STATE_BYTES = 4  # an element of a recurrent state: engines keep it in float32


def parameter_count(arch: Architecture) -> int:
    """Parameters of the whole model, a tied tensor once."""
    return sum(tensor.n_elements for tensor in tensors_of(arch))


@functools.lru_cache
def streamed_parameters(arch: Architecture, parts: Part = WHOLE) -> int:
    """Parameters that one decode step of one sequence must read, of these parts of the layers.

    All but tables that are only looked up (an untied input embedding, learned positions) and the experts
    that a token does not use. A tied embedding is the LM head, so it is read.
    """
    total = 0
    for tensor in tensors_of(arch):
        if tensor.use is Use.READ and Part.DENSE in parts:
            total += tensor.n_elements
        elif tensor.use is Use.ROUTED and Part.EXPERTS in parts and tensor.layer is not None:
            network = arch.layers[tensor.layer].feed_forward
            total += tensor.n_elements // network.n_experts * network.n_experts_used
    return total


def kv_bytes_per_token(arch: Architecture, k_element_bytes: float, v_element_bytes: float | None = None) -> float:
    """Bytes that one token of one sequence occupies in the KV cache, in all layers that keep it.

    Windowed layers count in full: this is what a token costs until a window is full. A recurrent layer's
    state does not grow with the tokens.

    Args:
        arch: the model's shape.
        k_element_bytes: of the keys: 2 for f16 and bf16; a block format's average, scales included.
        v_element_bytes: of the values; None: as the keys.
    """
    v_bytes = k_element_bytes if v_element_bytes is None else v_element_bytes
    return sum(
        n_layers * _token_bytes(mixer, k_element_bytes, v_bytes)
        for mixer, n_layers in _mixers(arch, None)
        if isinstance(mixer, Attention) and not mixer.shares_cache
    )


def kv_cache_bytes(
    arch: Architecture,
    context: int,
    k_element_bytes: float = 2,
    v_element_bytes: float | None = None,
    layers: range | None = None,
) -> float:
    """Bytes of state that one sequence of `context` tokens needs: keys and values, and recurrent states.

    A windowed layer keeps no more tokens than its window.

    Args:
        arch: the model's shape.
        context: tokens.
        k_element_bytes: bytes of an element of the keys.
        v_element_bytes: of the values; None: as the keys.
        layers: only these layers of the stack; None: all.
    """
    v_bytes = k_element_bytes if v_element_bytes is None else v_element_bytes
    total = 0.0
    for mixer, n_layers in _mixers(arch, layers):
        if not isinstance(mixer, Attention):
            total += n_layers * mixer.state_elements * _STATE_BYTES
        elif not mixer.shares_cache:
            total += n_layers * _token_bytes(mixer, k_element_bytes, v_bytes) * float(_attended(mixer, context))
    return total


def kv_read_bytes(
    arch: Architecture,
    contexts: ArrayLike,
    k_element_bytes: float = 2,
    v_element_bytes: float | None = None,
    layers: range | None = None,
) -> NDArray[np.float64]:
    """Bytes of state that a decode step of one sequence reads, for each of several context lengths.

    A layer that shares another's cache reads it once more.

    Args:
        arch: the model's shape.
        contexts: tokens in the cache when the step runs, any shape.
        k_element_bytes: bytes of an element of the keys.
        v_element_bytes: of the values; None: as the keys.
        layers: only these layers of the stack; None: all.

    Returns:
        Bytes, in the shape of `contexts`.
    """
    v_bytes = k_element_bytes if v_element_bytes is None else v_element_bytes
    total = np.zeros(np.shape(contexts))
    for mixer, n_layers in _mixers(arch, layers):
        if isinstance(mixer, Attention):
            total = total + n_layers * _token_bytes(mixer, k_element_bytes, v_bytes) * _attended(mixer, contexts)
        else:
            total = total + n_layers * mixer.state_elements * _STATE_BYTES
    return total


def prefill_flops(arch: Architecture, prompt: int, depth: int = 0, batch: int = 1, parts: Part = WHOLE) -> int:
    """Floating-point operations of a prefill: `batch` prompts of `prompt` tokens, each after `depth` cached ones.

    Two for each weight and token, the LM head for the last position only; and for attention two for each
    element of a query times every key that it sees, two more for the values. Of latent attention, the cheaper of
    uncompressing the cached tokens and of moving each query into the compressed space. Of a recurrent state, three
    products with it for each token: what it recalls, what it learns, what it answers.

    Args:
        arch: the model's shape.
        prompt: tokens of each prompt.
        depth: tokens in the cache before it.
        batch: prompts.
        parts: only these parts of the layers; attention goes with the KV cache, the LM head with the dense tensors.
    """
    head = arch.vocab_size * arch.d_model if Part.DENSE in parts else 0
    body = streamed_parameters(arch, parts) - head
    mixers = _mixers(arch, None) if Part.KV in parts else []
    mixing = sum(n_layers * _mixing_flops(mixer, prompt, depth) for mixer, n_layers in mixers)
    return batch * (2 * prompt * body + 2 * head + mixing)


def decode_flops(arch: Architecture, context: int, batch: int = 1, parts: Part = WHOLE) -> int:
    """Floating-point operations of one decode step of `batch` sequences that each hold `context` tokens."""
    return prefill_flops(arch, 1, context, batch, parts)


def _mixers(arch: Architecture, layers: range | None) -> list[tuple[Attention | Recurrent, int]]:
    """Each mixer with the number of layers that have it; by identity, since most models share one or two objects."""
    chosen = arch.layers if layers is None else arch.layers[layers.start : layers.stop]
    mixers = {id(layer.mixer): layer.mixer for layer in chosen}
    return [(mixers[key], n_layers) for key, n_layers in Counter(id(layer.mixer) for layer in chosen).items()]


def _token_bytes(attention: Attention, k_bytes: float, v_bytes: float) -> float:
    if attention.latent is not None:  # one vector for keys and values together
        return (attention.latent.kv_rank + attention.latent.rope_dim) * k_bytes
    return attention.n_kv_heads * (attention.head_dim * k_bytes + attention.value_dim * v_bytes)


def _attended(attention: Attention, contexts: ArrayLike) -> NDArray[np.float64]:
    tokens = np.asarray(contexts, dtype=np.float64)
    return tokens if attention.window is None else np.minimum(tokens, attention.window)


def _mixing_flops(mixer: Attention | Recurrent, prompt: int, depth: int) -> int:
    """Of one layer and sequence, without the projections of the prompt's own tokens."""
    if not isinstance(mixer, Attention):
        return 3 * 2 * mixer.state_elements * prompt
    pairs = _pairs(prompt, depth, mixer.window)
    uncompressed = 2 * mixer.n_heads * (mixer.head_dim + mixer.value_dim) * pairs
    latent = mixer.latent
    if latent is None:
        return uncompressed
    projection = latent.kv_rank * mixer.n_heads * (mixer.head_dim - latent.rope_dim + mixer.value_dim)
    compressed = 2 * mixer.n_heads * (2 * latent.kv_rank + latent.rope_dim) * pairs
    return min(uncompressed + 2 * depth * projection, compressed)


def _pairs(prompt: int, depth: int, window: int | None) -> int:
    """Pairs of a query and a key that it sees: query i, from 1, sees `depth + i` keys, or a window's."""
    growing = prompt if window is None else max(0, min(prompt, window - depth))
    full = (prompt - growing) * (window or 0)
    return growing * depth + growing * (growing + 1) // 2 + full
