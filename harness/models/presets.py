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


def _qwen2(**shape: Any) -> Config:
    return _decoder(
        "Qwen2ForCausalLM",
        "qwen2",
        vocab_size=152064,
        bos_token_id=151643,
        eos_token_id=151643,
        max_position_embeddings=131072,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        sliding_window=None,
        use_sliding_window=False,
        max_window_layers=shape["layers"],
        **shape,
    )


def _mixtral(**shape: Any) -> Config:
    return _decoder(
        "MixtralForCausalLM",
        "mixtral",
        vocab_size=32000,
        bos_token_id=1,
        eos_token_id=2,
        max_position_embeddings=32768,
        rms_norm_eps=1e-5,
        rope_theta=1000000.0,
        sliding_window=None,
        num_local_experts=8,
        num_experts_per_tok=2,
        **shape,
    )


def _phi4(**shape: Any) -> Config:
    return _decoder(
        "Phi3ForCausalLM",
        "phi3",
        vocab_size=100352,
        bos_token_id=100257,
        eos_token_id=100257,
        pad_token_id=100257,
        max_position_embeddings=16384,
        original_max_position_embeddings=16384,
        rms_norm_eps=1e-5,
        rope_theta=250000.0,
        rope_scaling=None,
        sliding_window=None,
        **shape,
    )


def _ministral3(**shape: Any) -> Config:
    return _decoder(
        "Ministral3ForCausalLM",
        "ministral3",
        vocab_size=131072,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=11,
        head_dim=128,
        max_position_embeddings=262144,
        rms_norm_eps=1e-5,
        sliding_window=None,
        **shape,
    )


def _gemma(architecture: str, model_type: str, **rest: Any) -> Config:
    return _decoder(
        architecture,
        model_type,
        bos_token_id=2,
        eos_token_id=1,
        pad_token_id=0,
        hidden_activation="gelu_pytorch_tanh",
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        **rest,
    )


def _gemma2(**shape: Any) -> Config:
    return _gemma(
        "Gemma2ForCausalLM",
        "gemma2",
        vocab_size=256000,
        max_position_embeddings=8192,
        rope_theta=10000.0,
        sliding_window=4096,
        query_pre_attn_scalar=256,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        **shape,
    )


def _gemma3(**shape: Any) -> Config:
    return _gemma(
        "Gemma3ForCausalLM",
        "gemma3_text",
        vocab_size=262208,
        max_position_embeddings=131072,
        rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window=1024,
        sliding_window_pattern=6,
        **{"query_pre_attn_scalar": 256, **shape},
    )


def _small_gemma3(**shape: Any) -> Config:
    """Those that only read: a shorter window and context, and a RoPE that is not stretched."""
    return _gemma3(heads=(4, 1), head_dim=256, **shape) | {
        "vocab_size": 262144,
        "max_position_embeddings": 32768,
        "rope_scaling": None,
        "sliding_window": 512,
    }


def _gemma4(global_kv_heads: int, **shape: Any) -> Config:
    return _gemma(
        "Gemma4ForCausalLM",
        "gemma4_text",
        vocab_size=262144,
        max_position_embeddings=262144,
        head_dim=256,
        global_head_dim=512,
        num_global_key_value_heads=global_kv_heads,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        sliding_window=1024,
        **shape,
    )


def _gpt_oss(layers: int, experts: int) -> Config:
    return _decoder(
        "GptOssForCausalLM",
        "gpt_oss",
        layers=layers,
        width=2880,
        feed_forward=2880,
        heads=(64, 8),
        head_dim=64,
        vocab_size=201088,
        eos_token_id=200002,
        pad_token_id=199999,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=150000.0,
        sliding_window=128,
        attention_bias=True,
        num_local_experts=experts,
        num_experts_per_tok=4,
        quantization_config={"quant_method": "mxfp4"},
    )


def _qwen3_moe(experts: int, expert_width: int, **shape: Any) -> Config:
    return _qwen3(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        num_experts=experts,
        num_experts_per_tok=8,
        moe_intermediate_size=expert_width,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        **shape,
    )


def _qwen3_5(architecture: str, model_type: str, *, linear_heads: tuple[int, int], **rest: Any) -> Config:
    return _decoder(
        architecture,
        model_type,
        vocab_size=248320,
        bos_token_id=248044,
        eos_token_id=248044,
        max_position_embeddings=262144,
        rms_norm_eps=1e-6,
        head_dim=256,
        full_attention_interval=4,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=linear_heads[0],
        linear_num_value_heads=linear_heads[1],
        **rest,
    )


PRESETS: dict[str, Config] = {
    # The teaching model of articles on inference: small enough to see every part, real GPT-2 in kind.
    "gpt2-mini": _gpt2(n_layer=3, n_head=6, n_embd=384, n_positions=256),
    "gpt2": _gpt2(n_layer=12, n_head=12, n_embd=768, n_positions=1024),
    "llama-2-7b": _llama2(layers=32, width=4096, feed_forward=11008, heads=(32, 32)),
    "llama-2-70b": _llama2(layers=80, width=8192, feed_forward=28672, heads=(64, 8)),
    "llama-3.1-8b": _llama3(8.0, layers=32, width=4096, feed_forward=14336, heads=(32, 8)),
    "llama-3.1-70b": _llama3(8.0, layers=80, width=8192, feed_forward=28672, heads=(64, 8)),
    "llama-3.2-1b": _llama3(
        32.0, layers=16, width=2048, feed_forward=8192, heads=(32, 8), head_dim=64, tie_word_embeddings=True
    ),
    "llama-3.2-3b": _llama3(
        32.0, layers=28, width=3072, feed_forward=8192, heads=(24, 8), head_dim=128, tie_word_embeddings=True
    ),
    "mistral-7b": _mistral(layers=32, width=4096, feed_forward=14336, heads=(32, 8), head_dim=128),
    "ministral-3-14b": _ministral3(layers=40, width=5120, feed_forward=16384, heads=(32, 8)),
    "mixtral-8x7b": _mixtral(layers=32, width=4096, feed_forward=14336, heads=(32, 8)),
    "phi-4": _phi4(layers=40, width=5120, feed_forward=17920, heads=(40, 10)),
    "gemma-2-9b": _gemma2(layers=42, width=3584, feed_forward=14336, heads=(16, 8), head_dim=256),
    "gemma-3-270m": _small_gemma3(layers=18, width=640, feed_forward=2048),
    "gemma-3-1b": _small_gemma3(layers=26, width=1152, feed_forward=6912),
    "gemma-3-4b": _gemma3(layers=34, width=2560, feed_forward=10240, heads=(8, 4), head_dim=256),
    "gemma-3-12b": _gemma3(layers=48, width=3840, feed_forward=15360, heads=(16, 8), head_dim=256),
    "gemma-3-27b": _gemma3(
        layers=62, width=5376, feed_forward=21504, heads=(32, 16), head_dim=128, query_pre_attn_scalar=168
    ),
    "gemma-4-31b": _gemma4(4, layers=60, width=5376, feed_forward=21504, heads=(32, 16)),
    "gemma-4-26b-a4b": _gemma4(
        2,
        layers=30,
        width=2816,
        feed_forward=2112,
        heads=(16, 8),
        enable_moe_block=True,
        num_experts=128,
        top_k_experts=8,
        moe_intermediate_size=704,
    ),
    "gpt-oss-20b": _gpt_oss(layers=24, experts=32),
    "gpt-oss-120b": _gpt_oss(layers=36, experts=128),
    "qwen2.5-7b": _qwen2(layers=28, width=3584, feed_forward=18944, heads=(28, 4)),
    "qwen2.5-14b": _qwen2(layers=48, width=5120, feed_forward=13824, heads=(40, 8)),
    "qwen2.5-72b": _qwen2(layers=80, width=8192, feed_forward=29568, heads=(64, 8)),
    "qwen3-0.6b": _qwen3(layers=28, width=1024, feed_forward=3072, heads=(16, 8), tie_word_embeddings=True),
    "qwen3-4b": _qwen3(layers=36, width=2560, feed_forward=9728, heads=(32, 8), tie_word_embeddings=True),
    "qwen3-8b": _qwen3(layers=36, width=4096, feed_forward=12288, heads=(32, 8)),
    "qwen3-14b": _qwen3(layers=40, width=5120, feed_forward=17408, heads=(40, 8)),
    "qwen3-32b": _qwen3(layers=64, width=5120, feed_forward=25600, heads=(64, 8)),
    "qwen3-30b-a3b": _qwen3_moe(128, 768, layers=48, width=2048, feed_forward=6144, heads=(32, 4)),
    "qwen3-235b-a22b": _qwen3_moe(128, 1536, layers=94, width=4096, feed_forward=12288, heads=(64, 4)),
    "qwen3.6-27b": _qwen3_5(
        "Qwen3_5ForCausalLM",
        "qwen3_5_text",
        linear_heads=(16, 48),
        layers=64,
        width=5120,
        feed_forward=17408,
        heads=(24, 4),
    ),
    "qwen3.6-35b-a3b": _qwen3_5(
        "Qwen3_5MoeForCausalLM",
        "qwen3_5_moe_text",
        linear_heads=(16, 32),
        layers=40,
        width=2048,
        feed_forward=512,
        heads=(16, 2),
        num_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
    ),
    "deepseek-v3": _decoder(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        layers=61,
        width=7168,
        feed_forward=18432,
        heads=(128, 128),
        vocab_size=129280,
        bos_token_id=0,
        eos_token_id=1,
        max_position_embeddings=163840,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        attention_bias=False,
        kv_lora_rank=512,
        q_lora_rank=1536,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        first_k_dense_replace=3,
        n_shared_experts=1,
        n_routed_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        n_group=8,
        topk_group=4,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    ),
}
