"""A sliding window: past it a step reads no more, and an engine need keep no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.experiments.kv_cache.asked import CannotAnswerError
from harness.experiments.kv_cache.shapes import written
from harness.models.presets import PRESETS
from harness.models.source import resolve_shape
from harness.roofline.architecture import Attention
from harness.workload import Case

if TYPE_CHECKING:
    from harness.experiments.kv_cache.asked import Asked
    from harness.options import Options
    from harness.roofline.architecture import Architecture

_CAPPED = "dynamic"  # a cache of transformers that keeps no more than the window; this project's own keeps all


def runs(asked: Asked) -> list[Options]:
    """Decode alone at a depth within the window and at two past it; beside it the same shape without a window.

    Raises:
        CannotAnswerError: no model can have a window in this one's shape.
    """
    window = max(1, asked.depths[-1] // 4)
    cases = tuple(Case(depth, 0, asked.n_steps) for depth in asked.depths)
    return [
        asked.run(
            backends=(name,),
            models=tuple(path for model in asked.options.models for path in variants(model, window, name)),
            cache_kind=("auto", *({_CAPPED} & {*asked.engines[name].cache_kinds})),
            # llama.cpp keeps a physical batch beside the window.
            n_ubatch=tuple(min(n, window) for n in asked.options.n_ubatch),
            cases=cases,
        )
        for name in asked.engines
    ]


def variants(model: str, window: int, backend: str) -> list[str]:
    """Directories of two models as wide and deep as one: with that window, and with one as long as the context.

    Raises:
        CannotAnswerError: the model has no attention or no dense networks.
    """
    source = resolve_shape(model)
    shape = source.architecture
    whole = shape.max_context or PRESETS["mistral-7b"]["max_position_embeddings"]
    config = _family(backend, shape.n_layers) | _sizes(model, shape) | {"max_position_embeddings": whole}
    if backend == "llama.cpp":  # Gemma's head is its embedding, and its scores are scaled by a key of their own
        config |= {"tie_word_embeddings": True, "query_pre_attn_scalar": config["head_dim"]}
    return [written(f"{source.name}-window{n}", config | {"sliding_window": n}) for n in (window, whole)]


def _sizes(model: str, shape: Architecture) -> dict[str, Any]:
    attention, network = shape.layers[0].mixer, shape.layers[0].feed_forward
    if not isinstance(attention, Attention) or not network.d_ff:
        raise CannotAnswerError(f"{model}: --experiment window needs a model of attention and dense networks")
    return {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "intermediate_size": network.d_ff,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_kv_heads,
        "head_dim": attention.head_dim,
        "tie_word_embeddings": shape.tied_embeddings,
    }


def _family(backend: str, n_layers: int) -> dict[str, Any]:
    """A family that an engine knows with windows.

    Transformers windows every layer of a Mistral, llama.cpp five of six in a Gemma 3. mlx-lm knows windows in a
    Llama's layers, but for one at least.
    """
    if backend == "llama.cpp":
        return PRESETS["gemma-3-1b"]
    mistral = PRESETS["mistral-7b"]
    if backend != "mlx":
        return mistral
    layer_types = ["sliding_attention"] * (n_layers - 1) + ["full_attention"]
    return mistral | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "layer_types": layer_types}
