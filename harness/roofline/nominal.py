"""A model's weights in a format by that format's definition, where there is no file to read.

Four kinds of names: plain ones ("bf16": every tensor), llama.cpp's mixtures ("q4_k_m", vectors in f32), MLX's ("4bit",
"mxfp4-mlx": every matrix, embeddings too) and those of quantised checkpoints ("fp8": the layers' matrices, the rest in
bf16).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.roofline.architecture import Attention
from harness.roofline.formats import FORMATS, unknown_format
from harness.roofline.mixtures import MIXTURES, Place, fitting, mixture_format
from harness.roofline.weights import Tensor, Use, Weight, Weights, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.roofline.architecture import Architecture

    RowElements = Callable[[Architecture, Tensor], int]

PLAIN = ("f32", "f16", "bf16")
_MLX = frozenset(name for name in FORMATS if "bit" in name or name.endswith("-mlx"))
_CHECKPOINT = {"fp8": "fp8", "int8": "int8", "int4": "int4", "nvfp4": "nvfp4", "mxfp4_bf16": "mxfp4"}
ALIASES = {"mxfp4": "mxfp4_moe", "q5_k": "q5_k_m", "q4_k": "q4_k_m", "q3_k": "q3_k_m"}
"""Mixtures by other names, which are llama-quantize's own."""

WEIGHT_FORMATS = frozenset({*PLAIN, *_MLX, *_CHECKPOINT, *ALIASES, *MIXTURES})
"""Lower-case names that `nominal_weights` knows."""

_ANY_BLOCK = math.lcm(*(element.block_elements for element in FORMATS.values()))  # a row that every block divides

_VECTOR_FORMAT = "bf16"  # of checkpoints; llama.cpp's are f32
_ROUTER = "ffn_gate_inp"
_MLX_ROUTER = "8bit"
# Matrices that no mixture quantises, and what llama.cpp's converter makes of them.
_KEPT = {"position_embd": "f32", _ROUTER: "f32", "per_layer_model_proj": "bf16"}
_FUSED_ATTENTION = frozenset({"gpt2", "phi3"})  # GGUF keeps queries, keys and values as one matrix
_STACKED_HEADS = frozenset({"attn_k_b", "attn_v_b"})  # of three dimensions in GGUF


def nominal_weights(arch: Architecture, weight_format: str) -> Weights:
    """Every tensor of a shape with the bytes that it has in a format.

    Args:
        arch: the model's shape.
        weight_format: one of `WEIGHT_FORMATS`, in upper or lower case. "mxfp4" is llama.cpp's: experts in mxfp4, the
            rest in q8_0; "mxfp4_bf16" is how gpt-oss was published, the rest in bf16.

    Raises:
        ValueError: there is no such format; the message has the nearest names.
    """
    return Weights(arch, tuple(_weigh(*pair) for pair in _typed(arch, weight_format)))


def element_formats(arch: Architecture, weight_format: str) -> dict[tuple[int | None, str], str]:
    """The element format of each tensor of `nominal_weights`, by its layer and name.

    Raises:
        ValueError: as `nominal_weights`.
    """
    return {(tensor.layer, tensor.name): element for tensor, element in _typed(arch, weight_format)}


def misfits(arch: Architecture, weight_format: str) -> tuple[Counter[str], int]:
    """What becomes of the matrices whose rows the blocks of a format do not divide.

    Returns:
        Their bytes by the element format that they get in its place, and the bytes of all weights.

    Raises:
        ValueError: as `nominal_weights`.
    """
    typed = _typed(arch, weight_format)
    wanted = [element for _, element in _typed(arch, weight_format, lambda *_: _ANY_BLOCK)]
    sizes = [(_weigh(*pair).n_bytes, pair[1]) for pair in typed]
    found: Counter[str] = Counter()
    for (n_bytes, element), fitting_one in zip(sizes, wanted, strict=True):
        if element != fitting_one:
            found[element] += n_bytes
    return found, sum(n_bytes for n_bytes, _ in sizes)


def is_quantised(arch: Architecture, weight_format: str) -> bool:
    """Whether any tensor would be, or the rows are too short for the format's blocks."""
    return any(element not in PLAIN for _, element in _typed(arch, weight_format))


def _typed(arch: Architecture, weight_format: str, row_elements: RowElements | None = None) -> list[tuple[Tensor, str]]:
    """Each tensor and its element format; `row_elements` tells the length of its rows, by default the true one."""
    name = weight_format.lower()
    name = ALIASES.get(name, name)
    if name not in WEIGHT_FORMATS:
        raise unknown_format(weight_format, WEIGHT_FORMATS)
    rows, tensors = row_elements or _row_elements, tensors_of(arch)
    if name in PLAIN:
        formats = [name] * len(tensors)
    elif name in MIXTURES:
        tensors = tuple(part for tensor in tensors for part in _as_in_gguf(arch, tensor))
        formats = _mixture(arch, tensors, name, rows)
    elif name in _MLX:
        formats = [_mlx(tensor, name, rows(arch, tensor)) for tensor in tensors]
    else:
        formats = [_checkpoint(tensor, name) for tensor in tensors]
    return list(zip(tensors, formats, strict=True))


def _weigh(tensor: Tensor, element: str) -> Weight:
    n_bytes = FORMATS[element].n_bytes(tensor.n_elements)
    return Weight(tensor.name, tensor.layer, tensor.n_elements, n_bytes, tensor.use)


def _mlx(tensor: Tensor, name: str, row_elements: int) -> str:
    """mlx-lm quantises every linear layer and embedding whose rows its groups divide; a router never below 8 bits."""
    if tensor.is_vector or row_elements % FORMATS[name].block_elements:
        return _VECTOR_FORMAT
    return _MLX_ROUTER if tensor.name == _ROUTER else name


def _checkpoint(tensor: Tensor, name: str) -> str:
    """Embeddings, LM head and routers stay as they are; of gpt-oss everything but the experts."""
    kept = tensor.is_vector or tensor.layer is None or tensor.name == _ROUTER
    if kept or (name == "mxfp4_bf16" and tensor.use is not Use.ROUTED):
        return _VECTOR_FORMAT
    return _CHECKPOINT[name]


def _mixture(arch: Architecture, tensors: tuple[Tensor, ...], mixture: str, row_elements: RowElements) -> list[str]:
    """llama.cpp's choice for each tensor."""
    heads = next((layer.mixer for layer in arch.layers if isinstance(layer.mixer, Attention)), None)
    queries_per_key = heads.n_heads // heads.n_kv_heads if heads else 1
    model = Place(
        index=0,
        n_layers=arch.n_layers,
        queries_per_key=queries_per_key,
        n_experts=max(layer.feed_forward.n_experts for layer in arch.layers),
        # The first LLaMA of 80 layers had 65 B parameters, and a key for each query.
        is_70b=arch.n_layers == 80
        and (arch.model_type == "qwen2" or (arch.model_type == "llama" and queries_per_key > 1)),
    )
    roles = [_role(arch, tensor) for tensor in tensors]
    # Linear attention has values too.
    with_values = sorted({t.layer or 0 for t, role in zip(tensors, roles, strict=True) if role in ("attn_v", "ssm")})
    formats = []
    for tensor, role in zip(tensors, roles, strict=True):
        place = replace(model, index=tensor.layer or 0)
        if role == "attn_v":  # counted among those that there are
            place = replace(model, index=with_values.index(tensor.layer or 0), n_layers=len(with_values))
        if tensor.is_vector or tensor.name in _KEPT:
            formats.append(_KEPT.get(tensor.name, "f32"))
        elif _is_mxfp4(arch, tensor, mixture):
            formats.append(fitting("mxfp4", row_elements(arch, tensor)))
        else:
            formats.append(mixture_format(mixture, role, place, row_elements(arch, tensor)))
    return formats


def _is_mxfp4(arch: Architecture, tensor: Tensor, mixture: str) -> bool:
    """Experts of the mixture that is named after it; gpt-oss was trained so, and stays so in every mixture."""
    if mixture == "mxfp4_moe":
        return tensor.use is Use.ROUTED or tensor.name in _STACKED_HEADS
    return tensor.use is Use.ROUTED and arch.model_type == "gpt_oss"


def _role(arch: Architecture, tensor: Tensor) -> str:
    """What llama.cpp's rule takes a tensor for."""
    if tensor.name == "output" or (tensor.layer is None and "token_embd" in tensor.name and arch.tied_embeddings):
        return "output"
    if tensor.layer is None and "token_embd" in tensor.name:
        return "token_embd"
    if arch.model_type in _FUSED_ATTENTION and tensor.name in ("attn_q", "attn_k"):
        return "attn_v"
    return tensor.name.removesuffix("_exps")


def _as_in_gguf(arch: Architecture, tensor: Tensor) -> list[Tensor]:
    """DeepSeek's keys and values are uncompressed by two tensors in GGUF, by one elsewhere."""
    mixer = arch.layers[tensor.layer or 0].mixer
    if tensor.name != "attn_kv_b" or not isinstance(mixer, Attention) or mixer.latent is None:
        return [tensor]
    keys = mixer.n_heads * (mixer.head_dim - mixer.latent.rope_dim) * mixer.latent.kv_rank
    return [
        replace(tensor, name="attn_k_b", n_elements=keys),
        replace(tensor, name="attn_v_b", n_elements=tensor.n_elements - keys),
    ]


def _row_elements(arch: Architecture, tensor: Tensor) -> int:
    """Length of a matrix's rows: of the vector that it is multiplied with."""
    if tensor.layer is None:
        return arch.d_model
    layer = arch.layers[tensor.layer]
    lengths = {"ffn_down": layer.feed_forward.d_ff, "ffn_down_exps": layer.feed_forward.d_expert}
    if isinstance(layer.mixer, Attention):
        lengths["attn_output"] = layer.mixer.n_heads * layer.mixer.value_dim
        lengths |= _latent_rows(layer.mixer)
    return lengths.get(tensor.name, arch.d_model)


def _latent_rows(attention: Attention) -> dict[str, int]:
    latent = attention.latent
    if latent is None:
        return {}
    return {
        "attn_q_b": latent.query_rank or 0,
        "attn_kv_b": latent.kv_rank,
        "attn_v_b": latent.kv_rank,
        "attn_k_b": attention.head_dim - latent.rope_dim,
    }
