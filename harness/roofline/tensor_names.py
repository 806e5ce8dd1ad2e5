"""What a decode step does with a tensor, and where it lies, told by its name in a checkpoint or in a GGUF file.

The scales and zero points of a quantised tensor have its name with an ending of their own, so they go where it goes.
Sources: transformers' modeling files, mlx-lm's models, llama.cpp's `gguf-py/gguf/constants.py`.
"""

from __future__ import annotations

import re

from harness.roofline.weights import Use

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blk|blocks)\.(\d+)\.")
# Towers that turn pictures and sound into tokens, what joins them to the model, and multi-token prediction.
_IDLE = re.compile(
    r"^(?:v|a|mm)\.|(?:^|\.)(?:visual|vision_\w+|audio_\w+|embed_vision|embed_audio|multi_modal_projector|mm_projector"
    r"|patch_merger|image_newline|mtp|nextn)\."
)
_EXPERTS = re.compile(r"\.(?:experts|switch_mlp)\.|_(?:ch)?exps\.|\.ffn_(?:gate|up|down)\.\d+\.")
_EXPERT_NUMBER = re.compile(r"(\.experts|\.ffn_gate|\.ffn_up|\.ffn_down)\.\d+(?=\.)")
_TOKENS = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|token_embd)\.")
_TABLES = re.compile(
    r"(?:^|\.)(?:wpe|embed_positions|position_embd|embed_tokens_per_layer|per_layer_token_embd)(?:\.|$)"
)
_HEAD = re.compile(r"(?:^|\.)lm_head\.")
# Of old checkpoints: masks and frequencies that engines compute themselves.
_BUFFER = re.compile(r"\.attn\.(?:masked_)?bias$|\.inv_freq$")


def part_of(name: str, n_layers: int, *, tied: bool) -> tuple[int | None, Use] | None:
    """The layer that a tensor belongs to, None outside the stack, and its use.

    Args:
        name: of a Hugging Face checkpoint, an mlx-lm model or a GGUF file.
        n_layers: of the stack; what lies beyond predicts further tokens and is idle.
        tied: the input embedding is the LM head too.

    Returns:
        None for what is no weight: buffers of old checkpoints, a second copy of a tied LM head.
    """
    if _BUFFER.search(name) or (tied and _HEAD.search(name)):
        return None
    found = _LAYER.search(name)
    layer = int(found[1]) if found else None
    if _IDLE.search(name) or (layer is not None and layer >= n_layers):
        return None, Use.IDLE
    if layer is not None:
        return layer, Use.ROUTED if _EXPERTS.search(name) else Use.READ
    if _TABLES.search(name) or (_TOKENS.search(name) and not tied):
        return None, Use.LOOKED_UP
    return None, Use.READ


def without_expert(name: str) -> str:
    """The name of all experts' tensors of a kind together: `experts.5.up_proj` and `experts.6.up_proj` are one."""
    return _EXPERT_NUMBER.sub(r"\1", name)
