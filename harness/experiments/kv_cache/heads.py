"""Grouped heads: the same shape with as many KV heads as queries (MHA), a quarter of them (GQA), and one (MQA)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.experiments.kv_cache.asked import CannotAnswerError
from harness.experiments.kv_cache.shapes import written
from harness.models import synthesis
from harness.models.hf_config import read_config
from harness.models.presets import PRESETS
from harness.models.source import resolve_shape
from harness.workload import Case

if TYPE_CHECKING:
    from harness.experiments.kv_cache.asked import Asked
    from harness.options import Options

_KV_HEADS = "num_key_value_heads"


def runs(asked: Asked) -> list[Options]:
    """Decode alone at several depths, with synthetic weights.

    Raises:
        CannotAnswerError: the model's heads cannot be regrouped.
    """
    cases = tuple(Case(depth, 0, asked.n_steps) for depth in asked.depths)
    models = tuple(path for model in asked.options.models for path in variants(model))
    return [asked.run(models=models, cases=cases)]


def variants(model: str) -> list[str]:
    """Directories of models that differ in their KV heads alone; written to the cache where it lacks them.

    Raises:
        CannotAnswerError: the model is none whose configuration names its KV heads.
    """
    config = _config(model)
    name = resolve_shape(model).name
    n_heads = int(config["num_attention_heads"])
    return [written(f"{name}-kv{n_kv_heads}", config | {_KV_HEADS: n_kv_heads}) for n_kv_heads in groupings(n_heads)]


def groupings(n_heads: int) -> list[int]:
    """KV heads that divide the queries' heads: all of them, about a quarter, one."""
    quarter = max(n for n in range(1, n_heads + 1) if n_heads % n == 0 and n <= max(n_heads // 4, 2))
    return sorted({n_heads, quarter, 1}, reverse=True)


def _config(model: str) -> dict[str, Any]:
    source = resolve_shape(model)
    if source.origin == "gguf":
        raise CannotAnswerError(
            f"{model}: --experiment heads makes models of other shapes; give a preset or a directory"
        )
    config = dict(PRESETS[model] if source.path is None else read_config(source.path))
    if config["model_type"] == "gpt2":
        return _as_llama(config)
    if _KV_HEADS not in config:
        raise CannotAnswerError(f"{model}: --experiment heads needs {_KV_HEADS} in its configuration")
    return {key: value for key, value in config.items() if key != synthesis.SYNTHETIC_KEY}


def _as_llama(gpt2: dict[str, Any]) -> dict[str, Any]:
    """GPT-2 has no grouped heads, so a Llama of its width and depth stands for it."""
    shape = {
        "num_hidden_layers": gpt2["n_layer"],
        "hidden_size": gpt2["n_embd"],
        "intermediate_size": 4 * gpt2["n_embd"],
        "num_attention_heads": gpt2["n_head"],
        "head_dim": gpt2["n_embd"] // gpt2["n_head"],
        "max_position_embeddings": gpt2["n_positions"],
        "vocab_size": gpt2["vocab_size"],
        "bos_token_id": gpt2["bos_token_id"],
        "eos_token_id": gpt2["eos_token_id"],
    }
    return {key: value for key, value in PRESETS["llama-3.2-1b"].items() if key != "rope_scaling"} | shape
