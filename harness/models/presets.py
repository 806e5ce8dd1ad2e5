"""Real architectures by name: the Hugging Face configurations of published models, without weights.

Sources: each model's own `config.json`. The flat keys `rope_theta` and `rope_scaling` are what mlx-lm reads
and what transformers 5 still accepts; `tie_word_embeddings` is always stated, for the libraries' defaults
differ.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def _gpt2(n_layer: int, n_head: int, n_embd: int, n_positions: int) -> Config:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "torch_dtype": "bfloat16",
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "vocab_size": 50257,
        "n_layer": n_layer,
        "n_head": n_head,
        "n_embd": n_embd,
        "n_positions": n_positions,
        "n_ctx": n_positions,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    }


def _decoder(
    architecture: str,
    model_type: str,
    *,
    layers: int,
    width: int,
    feed_forward: int,
    heads: tuple[int, int],
    **rest: Any,
) -> Config:
    """The keys that all later families share; `heads` are those of the queries and those of the keys."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "torch_dtype": "bfloat16",
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": feed_forward,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        **rest,
    }


def _llama2(**shape: Any) -> Config:
    return _decoder(
        "LlamaForCausalLM",
        "llama",
        vocab_size=32000,
        bos_token_id=1,
        eos_token_id=2,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=None,
        **shape,
    )


def _llama3(rope_factor: float, **shape: Any) -> Config:
    return _decoder(
        "LlamaForCausalLM",
        "llama",
        vocab_size=128256,
        bos_token_id=128000,
        eos_token_id=128001,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": rope_factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        **shape,
    )


def _mistral(**shape: Any) -> Config:
    return _decoder(
        "MistralForCausalLM",
        "mistral",
        vocab_size=32768,
        bos_token_id=1,
        eos_token_id=2,
        max_position_embeddings=32768,
        rms_norm_eps=1e-5,
        rope_theta=1000000.0,
        sliding_window=None,
        **shape,
    )


def _qwen3(architecture: str = "Qwen3ForCausalLM", model_type: str = "qwen3", **shape: Any) -> Config:
    return _decoder(
        architecture,
        model_type,
        vocab_size=151936,
        bos_token_id=151643,
        eos_token_id=151645,
        max_position_embeddings=40960,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        rope_scaling=None,
        sliding_window=None,
        use_sliding_window=False,
        attention_bias=False,
        head_dim=128,
        **shape,
    )


PRESETS: dict[str, Config] = {
    # The teaching model of articles on inference: small enough to see every part, real GPT-2 in kind.
    "gpt2-mini": _gpt2(n_layer=3, n_head=6, n_embd=384, n_positions=256),
    "gpt2": _gpt2(n_layer=12, n_head=12, n_embd=768, n_positions=1024),
    "llama-2-7b": _llama2(layers=32, width=4096, feed_forward=11008, heads=(32, 32)),
    "llama-3.1-8b": _llama3(8.0, layers=32, width=4096, feed_forward=14336, heads=(32, 8)),
    "llama-3.1-70b": _llama3(8.0, layers=80, width=8192, feed_forward=28672, heads=(64, 8)),
    "llama-3.2-1b": _llama3(
        32.0, layers=16, width=2048, feed_forward=8192, heads=(32, 8), head_dim=64, tie_word_embeddings=True
    ),
    "llama-3.2-3b": _llama3(
        32.0, layers=28, width=3072, feed_forward=8192, heads=(24, 8), head_dim=128, tie_word_embeddings=True
    ),
    "mistral-7b": _mistral(layers=32, width=4096, feed_forward=14336, heads=(32, 8), head_dim=128),
    "qwen3-0.6b": _qwen3(layers=28, width=1024, feed_forward=3072, heads=(16, 8), tie_word_embeddings=True),
    "qwen3-8b": _qwen3(layers=36, width=4096, feed_forward=12288, heads=(32, 8)),
    "qwen3-32b": _qwen3(layers=64, width=5120, feed_forward=25600, heads=(64, 8)),
    "qwen3-30b-a3b": _qwen3(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        layers=48,
        width=2048,
        feed_forward=6144,
        heads=(32, 4),
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
}
