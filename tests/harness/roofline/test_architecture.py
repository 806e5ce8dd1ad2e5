"""Reading a model's shape from configurations and metadata, against transformers and a pencil."""

import pytest
from transformers import AutoConfig

from harness.models.presets import PRESETS
from harness.roofline.architecture import Architecture, from_gguf_metadata, from_hf_config

# transformers' name for each of our numbers, the same for every family.
_TRANSFORMERS_NAMES = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "vocab_size": "vocab_size",
    "max_context": "max_position_embeddings",
    "tied_embeddings": "tie_word_embeddings",
}


@pytest.mark.parametrize("name", PRESETS)
def test_agrees_with_transformers(name: str) -> None:
    config = AutoConfig.for_model(**PRESETS[name])
    arch = from_hf_config(PRESETS[name])
    for ours, theirs in _TRANSFORMERS_NAMES.items():
        assert getattr(arch, ours) == getattr(config, theirs), ours
    assert arch.n_kv_heads == getattr(config, "num_key_value_heads", config.num_attention_heads)
    assert arch.head_dim == getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)


def test_mixture_of_experts() -> None:
    arch = from_hf_config(PRESETS["qwen3-30b-a3b"])
    assert (arch.n_experts, arch.n_experts_used, arch.d_expert, arch.d_ff) == (128, 8, 768, 0)


@pytest.mark.parametrize("key", ["model_type", "num_hidden_layers", "hidden_size", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    config = {name: value for name, value in PRESETS["llama-3.1-8b"].items() if name != key}
    with pytest.raises(ValueError, match=f"{key} is missing"):
        from_hf_config(config)


def test_a_key_of_the_wrong_type_is_named() -> None:
    with pytest.raises(ValueError, match="num_hidden_layers is '32', not a whole number"):
        from_hf_config(PRESETS["llama-3.1-8b"] | {"num_hidden_layers": "32"})


def test_a_window_counts_only_where_it_is_used() -> None:
    windowed = PRESETS["mistral-7b"] | {"sliding_window": 4096}
    assert from_hf_config(windowed).sliding_window == 4096
    unused = PRESETS["qwen3-8b"] | {"sliding_window": 4096, "use_sliding_window": False}
    assert from_hf_config(unused).sliding_window is None


# Llama 3.1 8B as llama.cpp's converter describes it.
_LLAMA_GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.context_length": 131072,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.vocab_size": 128256,
}


def test_gguf_and_hugging_face_describe_the_same_model() -> None:
    assert from_gguf_metadata(_LLAMA_GGUF, tied_embeddings=False) == from_hf_config(PRESETS["llama-3.1-8b"])


def test_gguf_vocabulary_may_be_told_by_the_tokens_only() -> None:
    metadata = {name: value for name, value in _LLAMA_GGUF.items() if name != "llama.vocab_size"}
    metadata["tokenizer.ggml.tokens"] = ["a", "b", "c"]
    assert from_gguf_metadata(metadata, tied_embeddings=False).vocab_size == 3


def test_gguf_mixture_of_experts() -> None:
    metadata = {key.replace("llama", "qwen3moe"): value for key, value in _LLAMA_GGUF.items()} | {
        "general.architecture": "qwen3moe",
        "qwen3moe.expert_count": 128,
        "qwen3moe.expert_used_count": 8,
        "qwen3moe.expert_feed_forward_length": 768,
        "qwen3moe.attention.key_length": 64,
    }
    arch = from_gguf_metadata(metadata, tied_embeddings=True)
    assert arch == Architecture(
        "qwen3_moe", 32, 4096, 32, 8, 64, 0, 128256, True, 131072, n_experts=128, n_experts_used=8, d_expert=768
    )


def test_a_missing_gguf_key_is_named() -> None:
    metadata = {name: value for name, value in _LLAMA_GGUF.items() if name != "llama.block_count"}
    with pytest.raises(ValueError, match=r"llama\.block_count is missing"):
        from_gguf_metadata(metadata, tied_embeddings=False)
