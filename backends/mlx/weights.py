"""Weights from a Hugging Face directory into one of mlx-lm's models, in the number format that was asked for."""

from __future__ import annotations

import glob
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.utils import load_model

from backends.base import BackendError
from backends.mlx import formats
from backends.mlx.errors import engine_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_DTYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def load(artifact: Path, weight_format: str | None) -> tuple[Any, dict[str, Any]]:
    """Load a model, and hold every parameter in memory in `weight_format` (None: as stored).

    Returns:
        mlx-lm's model and its configuration.

    Raises:
        BackendError: see `backends.mlx.load`.
    """
    with engine_errors(f"mlx-lm cannot load {artifact.name}", artifact):
        model, config = open_model(artifact)
        if weight_format and "quantization" in config:
            if (stored := stored_format(model, config)) != weight_format:
                raise BackendError(f"{artifact.name} holds {stored} weights: they cannot become {weight_format}")
        elif weight_format:
            _cast(model, _DTYPES[weight_format])
        mx.eval(model.parameters())
    return model, config


def open_model(artifact: Path) -> tuple[Any, dict[str, Any]]:
    """mlx-lm's model and its configuration; its weights are read when they are needed.

    Raises:
        BackendError: mlx-lm would run code that comes with the model, or would find no file of it.
    """
    stated = json.loads((artifact / "config.json").read_text(encoding="utf-8"))
    if stated.get("model_file") is not None:
        raise BackendError(f"{artifact.name} needs Python code of its own (model_file), which is never run")
    if glob.escape(str(artifact)) != str(artifact):
        raise BackendError(f"{artifact.name}: mlx-lm takes * ? and [ in a path for wildcards; rename the folder")
    model, config = load_model(artifact, lazy=True, model_config=older_names(stated))
    return model, config


def format_of(dtype: mx.Dtype) -> str:
    """Our name for a number format; MLX's own for one that we do not name."""
    ours = {dtype: name for name, dtype in _DTYPES.items()}
    return ours.get(dtype) or str(dtype).rpartition(".")[2]


def stored_format(model: Any, config: dict[str, Any]) -> str:
    """The format of the largest parameter, or MLX's name of a quantised model's: "4bit", "4bit-g32", "mxfp4"."""
    if told := config.get("quantization"):
        if (mode := told.get("mode", "affine")) != "affine":
            return str(mode)
        return formats.affine_name(told["bits"], told["group_size"])
    return format_of(max(arrays(model.parameters()), key=lambda array: array.nbytes).dtype)


def arrays(tree: Any) -> list[mx.array]:
    """The arrays among the leaves of nested dictionaries and lists."""
    leaves: Any = tree_flatten(tree)
    return [leaf for _, leaf in leaves if isinstance(leaf, mx.array)]


@contextmanager
def last_position_only(model: Any) -> Iterator[None]:
    """Hand the LM head the last position alone: mlx-lm's models compute the logits of all.

    The stack of layers gets a class of its own meanwhile, so that the model finds everything else in its place.

    Raises:
        BackendError: the model has no such stack.
    """
    stack = _stack(model)
    whole = type(stack)

    class LastPosition(whole):  # type: ignore[misc, valid-type]
        def __call__(self, *arguments: Any, **named: Any) -> mx.array:
            hidden: mx.array = super().__call__(*arguments, **named)
            return hidden[:, -1:]

    stack.__class__ = LastPosition
    try:
        yield
    finally:
        stack.__class__ = whole


def _stack(model: Any) -> Any:
    """The part of a model that holds its layers, and whose output the LM head takes; its name differs."""
    first = model.layers[0]
    for module in model.modules():
        if module is not model and any(
            isinstance(part, list) and part and part[0] is first for part in module.values()
        ):
            return module
    raise BackendError(f"mlx-lm's {model.model_type} keeps its layers beside its LM head: it runs with a KV cache only")


def _cast(model: Any, dtype: mx.Dtype) -> None:
    # Where mlx-lm's own converter leaves a parameter in float32, so do we.
    castable = getattr(model, "cast_predicate", lambda _: True)

    def cast(path: str, array: mx.array) -> mx.array:
        return array.astype(dtype) if castable(path) and mx.issubdtype(array.dtype, mx.floating) else array

    model.update(tree_map_with_path(cast, model.parameters()))


def older_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers 5 saves under names that most of mlx-lm's models do not read.

    Without `rope_theta` and `rope_scaling` they would take their defaults without a word.
    """
    older = {
        "n_ctx": config.get("n_positions"),
        "num_experts": config.get("num_local_experts"),
        "sliding_window_pattern": config.get("_sliding_window_pattern"),
    }
    rope = config.get("rope_parameters") or {}
    if "sliding_attention" in rope:  # Gemma 3 has two
        older["rope_local_base_freq"] = rope["sliding_attention"].get("rope_theta")
        rope = rope.get("full_attention") or {}
    if "rope_theta" in rope:
        kind = rope.get("rope_type", "default")
        older |= {**rope, "rope_scaling": None if kind == "default" else {**rope, "type": kind}}
    return {name: value for name, value in older.items() if config.get(name) is None and value is not None}
