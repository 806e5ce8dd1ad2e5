"""Reading GGUF metadata: the same model must have the same shape, whoever describes it.

The metadata below are those of published files, as model pages list them or as llama.cpp's converter writes them.
"""

from typing import Any

import pytest

from harness.models.presets import PRESETS
from harness.roofline.architecture import Attention
from harness.roofline.gguf_metadata import from_gguf_metadata
from harness.roofline.hf_config import from_hf_config
from harness.roofline.traffic import kv_bytes_per_token, streamed_parameters

Metadata = dict[str, Any]


def _metadata(architecture: str, **keys: object) -> Metadata:
    """`__` stands for a dot."""
    own = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return {"general.architecture": architecture, "general.file_type": 15, **own}


def _rotary(head_dim: int) -> Metadata:
    return {"attention__key_length": head_dim, "attention__value_length": head_dim, "rope__dimension_count": head_dim}


def _stack(layers: int, width: int, heads: object, kv_heads: object, context: int, vocabulary: int) -> Metadata:
    return {
        "block_count": layers,
        "embedding_length": width,
        "attention__head_count": heads,
        "attention__head_count_kv": kv_heads,
        "context_length": context,
        "vocab_size": vocabulary,
        "attention__layer_norm_rms_epsilon": 1e-6,
        "rope__freq_base": 10000.0,
    }


_GATED_DELTA = {
    "ssm__conv_kernel": 4,
    "ssm__group_count": 16,
    "ssm__state_size": 128,
    "full_attention_interval": 4,
    "rope__dimension_sections": [11, 11, 10, 0],
}

_FILES: dict[str, Metadata] = {
    "llama-3.1-8b": _metadata("llama", **_stack(32, 4096, 32, 8, 131072, 128256), feed_forward_length=14336),
    "mixtral-8x7b": _metadata(
        "llama",
        **_stack(32, 4096, 32, 8, 32768, 32000),
        feed_forward_length=14336,
        expert_count=8,
        expert_used_count=2,
    ),
    "gpt2": _metadata(
        "gpt2",
        block_count=12,
        context_length=1024,
        embedding_length=768,
        feed_forward_length=3072,
        attention__head_count=12,
        vocab_size=50257,
    ),
    "phi-4": _metadata(
        "phi3",
        **_stack(40, 5120, 40, 10, 16384, 100352),
        feed_forward_length=17920,
        attention__sliding_window=0,
        rope__scaling__original_context_length=16384,
    ),
    "ministral-3-14b": _metadata(
        "mistral3",
        **_stack(40, 5120, 32, 8, 262144, 131072),
        **_rotary(128),
        feed_forward_length=16384,
        attention__temperature_scale=0.1,
    ),
    "qwen2.5-7b": _metadata("qwen2", **_stack(28, 3584, 28, 4, 131072, 152064), feed_forward_length=18944),
    "qwen3-30b-a3b": _metadata(
        "qwen3moe",
        **_stack(48, 2048, 32, 4, 40960, 151936),
        **_rotary(128),
        feed_forward_length=6144,
        expert_count=128,
        expert_used_count=8,
        expert_feed_forward_length=768,
    ),
    "gemma-2-9b": _metadata(
        "gemma2",
        **_stack(42, 3584, 16, 8, 8192, 256000),
        **_rotary(256),
        feed_forward_length=14336,
        attention__sliding_window=4096,
        attn_logit_softcapping=50.0,
    ),
    "gemma-3-27b": _metadata(
        "gemma3",
        **_stack(62, 5376, 32, 16, 131072, 262208),
        **_rotary(128),
        feed_forward_length=21504,
        attention__sliding_window=1024,
    ),
    "gemma-4-26b-a4b": _metadata(
        "gemma4",
        **_stack(30, 2816, 16, [8, 8, 8, 8, 8, 2] * 5, 262144, 262144),
        attention__key_length=512,
        attention__value_length=512,
        attention__key_length_swa=256,
        attention__value_length_swa=256,
        attention__shared_kv_layers=0,
        attention__sliding_window=1024,
        attention__sliding_window_pattern=([True] * 5 + [False]) * 5,
        embedding_length_per_layer_input=0,
        feed_forward_length=2112,
        expert_count=128,
        expert_used_count=8,
        expert_feed_forward_length=704,
        rope__dimension_count=512,
        rope__dimension_count_swa=256,
        vision__block_count=27,
        vision__feed_forward_length=4304,
    ),
    "gpt-oss-20b": _metadata(
        "gpt-oss",
        **_stack(24, 2880, 64, 8, 131072, 201088),
        **_rotary(64),
        feed_forward_length=2880,
        expert_count=32,
        expert_used_count=4,
        expert_feed_forward_length=2880,
        attention__sliding_window=128,
        rope__scaling__original_context_length=4096,
    ),
    "qwen3.6-27b": _metadata(
        "qwen35",
        **_stack(64, 5120, 24, 4, 262144, 248320),
        **_rotary(256),
        **_GATED_DELTA,
        feed_forward_length=17408,
        attention__recurrent_layers=[True, True, True, False] * 16,
        ssm__inner_size=6144,
        ssm__time_step_rank=48,
    ),
    "qwen3.6-35b-a3b": _metadata(
        "qwen35moe",
        **_stack(40, 2048, 16, 2, 262144, 248320),
        **_rotary(256),
        **_GATED_DELTA,
        expert_count=256,
        expert_used_count=8,
        expert_feed_forward_length=512,
        expert_shared_feed_forward_length=512,
        ssm__inner_size=4096,
        ssm__time_step_rank=32,
    ),
    "deepseek-v3": _metadata(
        "deepseek2",
        **_stack(61, 7168, 128, 1, 163840, 129280),
        feed_forward_length=18432,
        attention__key_length=576,
        attention__value_length=512,
        attention__key_length_mla=192,
        attention__value_length_mla=128,
        attention__kv_lora_rank=512,
        attention__q_lora_rank=1536,
        rope__dimension_count=64,
        leading_dense_block_count=3,
        expert_count=256,
        expert_used_count=8,
        expert_shared_count=1,
        expert_feed_forward_length=2048,
        expert_group_count=8,
        expert_group_used_count=4,
        expert_gating_func=2,
        expert_weights_scale=2.5,
    ),
}
_LLAMA = _FILES["llama-3.1-8b"]


@pytest.mark.parametrize("name", _FILES)
def test_gguf_and_hugging_face_describe_the_same_model(name: str) -> None:
    arch = from_hf_config(PRESETS[name])
    assert from_gguf_metadata(_FILES[name], tied_embeddings=arch.tied_embeddings) == arch


def test_deepseek_files_of_before_2025_have_whole_heads() -> None:
    new = _FILES["deepseek-v3"]
    old = {key: value for key, value in new.items() if not key.endswith("_mla")}
    old |= {"deepseek2.attention.key_length": 192, "deepseek2.attention.value_length": 128}
    old["deepseek2.attention.head_count_kv"] = 128
    assert from_gguf_metadata(old, tied_embeddings=False) == from_gguf_metadata(new, tied_embeddings=False)


def test_layers_for_multi_token_prediction_are_no_layers() -> None:
    more = _FILES["qwen3.6-27b"] | {"qwen35.block_count": 65, "qwen35.nextn_predict_layers": 1}
    more["qwen35.attention.recurrent_layers"] = [True, True, True, False] * 16 + [False]
    assert from_gguf_metadata(more, tied_embeddings=False) == from_hf_config(PRESETS["qwen3.6-27b"])


# Gemma 4 E2B: every fifth layer global, the last 20 of 35 share caches and have networks of twice the width.
_E2B = _metadata(
    "gemma4",
    **_stack(35, 1536, 8, 1, 131072, 262144),
    attention__key_length=512,
    attention__value_length=512,
    attention__key_length_swa=256,
    attention__value_length_swa=256,
    attention__shared_kv_layers=20,
    attention__sliding_window=512,
    attention__sliding_window_pattern=[True, True, True, True, False] * 7,
    embedding_length_per_layer_input=256,
    feed_forward_length=[6144] * 15 + [12288] * 20,
)


def test_arrays_by_layer() -> None:
    arch = from_gguf_metadata(_E2B, tied_embeddings=True)
    assert [layer.feed_forward.d_ff for layer in arch.layers] == [6144] * 15 + [12288] * 20
    mixers = [layer.mixer for layer in arch.layers if isinstance(layer.mixer, Attention)]
    assert [mixer.head_dim for mixer in mixers] == [256, 256, 256, 256, 512] * 7
    assert [mixer.shares_cache for mixer in mixers] == [False] * 15 + [True] * 20
    assert kv_bytes_per_token(arch, 2) == 2 * (12 * 256 + 3 * 512) * 2
    assert arch.per_layer_embeddings == 262144 * 35 * 256
    # "2.3B effective", says Google: what is left without the tables that are only looked up.
    assert streamed_parameters(arch) == pytest.approx(2.3e9, rel=0.01)


def test_a_pattern_may_be_a_number_or_a_list() -> None:
    gemma = _FILES["gemma-3-27b"]
    as_number = gemma | {"gemma3.attention.sliding_window_pattern": 6}
    as_list = gemma | {"gemma3.attention.sliding_window_pattern": ([True] * 5 + [False]) * 10 + [True] * 2}
    expected = from_gguf_metadata(gemma, tied_embeddings=True)
    assert from_gguf_metadata(as_number, tied_embeddings=True) == expected
    assert from_gguf_metadata(as_list, tied_embeddings=True) == expected


def test_gemma_3_without_a_window_has_none() -> None:
    metadata = {key: value for key, value in _FILES["gemma-3-27b"].items() if not key.endswith("sliding_window")}
    assert from_gguf_metadata(metadata, tied_embeddings=True).window is None


def test_the_vocabulary_may_be_told_by_the_tokens_only() -> None:
    metadata = {name: value for name, value in _LLAMA.items() if name != "llama.vocab_size"}
    metadata["tokenizer.ggml.tokens"] = ["a", "b", "c"]
    assert from_gguf_metadata(metadata, tied_embeddings=False).vocab_size == 3


@pytest.mark.parametrize(
    "key", ["block_count", "embedding_length", "attention.head_count", "feed_forward_length", "vocab_size"]
)
def test_a_missing_key_is_named(key: str) -> None:
    metadata = {name: value for name, value in _LLAMA.items() if name != f"llama.{key}"}
    with pytest.raises(ValueError, match=rf"llama\.{key} is missing"):
        from_gguf_metadata(metadata, tied_embeddings=False)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("llama-3.1-8b", {"general.architecture": "mamba"}, "general.architecture 'mamba' is unknown; known are "),
        ("llama-3.1-8b", {"llama.expert_shared_count": 1}, r"llama\.expert_shared_count is 1, which llama is not"),
        ("llama-3.1-8b", {"llama.attention.kv_lora_rank": 512}, r"llama\.attention\.kv_lora_rank is 512"),
        ("llama-3.1-8b", {"llama.attention.head_count_kv": [8] * 31}, r"llama\.attention\.head_count_kv lists 31"),
        (
            "llama-3.1-8b",
            {"llama.attention.head_count": [32] * 31 + [16]},
            r"llama\.attention\.head_count is 16 in one",
        ),
        ("llama-3.1-8b", {"llama.attention.head_count_kv": 5}, "32 attention heads cannot share 5"),
        ("llama-3.1-8b", {"llama.block_count": -1}, r"llama\.block_count is -1, not a whole number"),
        ("llama-3.1-8b", {"llama.attention.value_length": 64}, r"llama\.attention\.value_length differs"),
        ("gemma-3-27b", {"gemma3.attention.sliding_window_pattern": [True]}, "sliding_window_pattern is no pattern"),
        ("qwen3-30b-a3b", {"qwen3moe.expert_used_count": 129}, "num_experts_per_tok is 129"),
        ("deepseek-v3", {"deepseek2.attention.indexer.key_length": 128}, r"indexer\.key_length is 128"),
        ("deepseek-v3", {"deepseek2.rope.dimension_count": 200}, r"deepseek2\.rope\.dimension_count is 200"),
    ],
)
def test_what_cannot_be_is_named(name: str, keys: Metadata, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_gguf_metadata(_FILES[name] | keys, tied_embeddings=False)
