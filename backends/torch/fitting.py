"""What is changed in a model of transformers so that it runs here: its attention, and the input of its LM head."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers

from backends.base import BackendError
from backends.torch.attention import ATTENTION, register
from backends.torch.errors import first_line


def fit(model: Any, *, own_attention: bool) -> str:
    """Change a model.

    Args:
        model: A transformers causal language model.
        own_attention: Have it call `attention.attend`; else transformers' function, which transformers' caches are
            made for.

    Returns:
        The name of the argument that takes a KV cache.

    Raises:
        BackendError: the model keeps another state than keys and values, or takes no attention function.
    """
    _use_attention(model, own=own_attention)
    model.get_output_embeddings().register_forward_pre_hook(_dense)
    # transformers 5.24 renamed the argument, and warns about the old name.
    return "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"


def _use_attention(model: Any, *, own: bool) -> None:
    config = model.config.get_text_config()
    others = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if others:
        raise BackendError(f"the torch backend does not run {config.model_type}: it has {', '.join(sorted(others))}")
    # Set to a name that it cannot call, a model that takes no function would go on as if nothing had happened.
    if not getattr(model, "_supports_attention_backend", False):
        raise BackendError(
            f"the torch backend does not run {config.model_type}: its implementation in transformers "
            f"{transformers.__version__} takes no attention function"
        )
    register()
    try:
        model.set_attn_implementation(ATTENTION if own else "sdpa")
    except ValueError as error:
        raise BackendError(f"transformers' caches need its sdpa attention: {first_line(error)}") from error


def _dense(_: torch.nn.Module, arguments: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """Copy the last position's hidden state out of its sequence, `[batch, 1, width]`.

    As the slice that it is, torch.matmul would not see a matrix in it, and would copy the whole LM head for a batched
    product: 1.6 s of a 1.9 s prefill (seen on a CPU with 128256 rows).
    """
    (hidden,) = arguments
    is_slice = hidden.stride(0) != hidden.shape[1] * hidden.stride(1)
    return (hidden.clone(memory_format=torch.contiguous_format),) if is_slice else arguments
