"""Reading `config.json`: what published ones hold, what is missing, contradictory or unknown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig

from harness.models.presets import PRESETS
from harness.roofline.architecture import Attention, Latent, Recurrent
from harness.roofline.families import FAMILIES
from harness.roofline.hf_config import from_hf_config

Config = dict[str, Any]

_LLAMA = PRESETS["llama-3.1-8b"]
_MOE = PRESETS["qwen3-30b-a3b"]

# Keys that publishers' own files hold beside those of the presets, and which change no byte.
_HARMLESS: dict[str, Config] = {
    "llama-3.1-8b": {"pretraining_tp": 1, "attention_dropout": 0.0, "use_cache": True, "initializer_range": 0.02},
    "mistral-7b": {"hidden_dropout": 0.1, "output_hidden_states": True, "tie_encoder_decoder": False, "n_ctx": 32768},
    "phi-4": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attention_bias": False, "auto_map": {}},
    "gpt2": {"n_ctx": 1024, "summary_use_proj": True, "attn_pdrop": 0.1, "task_specific_params": {"a": {"n": 1}}},
    "gpt-oss-20b": {
        "experts_per_token": 4,
        "initial_context_length": 4096,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.9,
        "swiglu_limit": 7.0,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    },
    "gemma-2-9b": {"sliding_window_size": 4096, "query_pre_attn_scalar": 256, "cache_implementation": "hybrid"},
    "gemma-3-27b": {"_sliding_window_pattern": 6, "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 168},
    "qwen2.5-7b": {"num_beams": 1, "no_repeat_ngram_size": 2, "num_return_sequences": 1, "num_labels": 2},
    "qwen3-30b-a3b": {"max_window_layers": 48, "router_aux_loss_coef": 0.001, "num_local_experts": 128},
    "qwen3.6-27b": {"mtp_num_hidden_layers": 1, "attn_output_gate": True, "mamba_ssm_dtype": "float32"},
    "deepseek-v3": {
        "aux_loss_alpha": 0.001,
        "ep_size": 1,
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": 1,
        "scoring_func": "sigmoid",
        "seq_aux": True,
        "topk_method": "noaux_tc",
        "head_dim": 64,
        "qk_head_dim": 192,
    },
}


@pytest.mark.parametrize("name", _HARMLESS)
def test_what_publishers_add_is_harmless(name: str) -> None:
    assert from_hf_config(PRESETS[name] | _HARMLESS[name]) == from_hf_config(PRESETS[name])


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_what_transformers_itself_writes_is_known(name: str) -> None:
    stated = AutoConfig.for_model(name).to_dict()
    if name == "deepseek_v2":
        stated["num_experts_per_tok"] = 6  # which transformers leaves open
    assert from_hf_config(stated).n_layers > 0


# As published: the text model states only what differs from transformers' defaults.
_GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999,
    "eos_token_id": [1, 106],
    "image_token_index": 262144,
    "initializer_range": 0.02,
    "mm_tokens_per_image": 256,
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896},
}


def test_the_text_model_of_one_that_sees() -> None:
    assert from_hf_config(_GEMMA_3_4B) == from_hf_config(PRESETS["gemma-3-4b"])


def test_the_whole_model_says_whether_its_embeddings_are_tied() -> None:
    untied = from_hf_config({**_GEMMA_3_4B, "tie_word_embeddings": False})
    assert not untied.tied_embeddings
    assert from_hf_config(_GEMMA_3_4B).tied_embeddings


def test_the_model_type_may_be_the_whole_models() -> None:
    text = {key: value for key, value in _GEMMA_3_4B["text_config"].items() if key != "model_type"}
    assert from_hf_config({**_GEMMA_3_4B, "text_config": text}) == from_hf_config(PRESETS["gemma-3-4b"])


@pytest.mark.parametrize(
    ("name", "tied"), [("llama-3.1-8b", False), ("gpt2", True), ("gemma-2-9b", True), ("gpt-oss-20b", False)]
)
def test_each_family_has_its_own_default_of_tied_embeddings(name: str, *, tied: bool) -> None:
    config = {key: value for key, value in PRESETS[name].items() if key != "tie_word_embeddings"}
    assert from_hf_config(config).tied_embeddings == tied


def test_layers() -> None:
    gpt_oss = from_hf_config(PRESETS["gpt-oss-20b"])
    assert [layer.mixer.window for layer in gpt_oss.layers[:4] if isinstance(layer.mixer, Attention)] == [
        128,
        None,
        128,
        None,
    ]
    gemma = from_hf_config(PRESETS["gemma-3-27b"])
    global_layers = [
        i for i, layer in enumerate(gemma.layers) if isinstance(layer.mixer, Attention) and not layer.mixer.window
    ]
    assert global_layers == [5, 11, 17, 23, 29, 35, 41, 47, 53, 59]
    qwen = from_hf_config(PRESETS["qwen3.6-27b"])
    assert [isinstance(layer.mixer, Recurrent) for layer in qwen.layers] == [True, True, True, False] * 16
    deepseek = from_hf_config(PRESETS["deepseek-v3"])
    assert [layer.feed_forward.n_experts for layer in deepseek.layers] == [0] * 3 + [256] * 58
    assert [layer.feed_forward.d_ff for layer in deepseek.layers] == [18432] * 3 + [2048] * 58
    mixer = deepseek.layers[0].mixer
    assert isinstance(mixer, Attention)
    assert (mixer.head_dim, mixer.value_dim, mixer.latent) == (192, 128, Latent(512, 64, 1536))


def test_a_window_counts_only_where_it_is_used() -> None:
    assert from_hf_config(PRESETS["mistral-7b"] | {"sliding_window": 4096}).window == 4096
    unused = PRESETS["qwen3-8b"] | {"sliding_window": 4096, "use_sliding_window": False}
    assert from_hf_config(unused).window is None
    used = unused | {"use_sliding_window": True, "max_window_layers": 30}
    windows = [layer.mixer.window for layer in from_hf_config(used).layers if isinstance(layer.mixer, Attention)]
    assert windows == [None] * 30 + [4096] * 6


def test_mistrals_first_version_has_a_window_without_saying_so() -> None:
    config = {key: value for key, value in PRESETS["mistral-7b"].items() if key != "sliding_window"}
    assert from_hf_config(config).window == 4096


@pytest.mark.parametrize("key", ["model_type", "num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size"])
def test_a_missing_key_is_named(key: str) -> None:
    config = {name: value for name, value in _LLAMA.items() if name != key}
    with pytest.raises(ValueError, match=f"{key} is missing"):
        from_hf_config(config)


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(ValueError, match=r"model_type 'rwkv7' is unknown; known are .*qwen3_moe"):
        from_hf_config(_LLAMA | {"model_type": "rwkv7"})


@pytest.mark.parametrize(
    ("base", "keys", "message"),
    [
        # another family's features
        (_LLAMA, {"num_experts": 8}, "num_experts is 8, which llama is not known to have"),
        (_LLAMA, {"kv_lora_rank": 512}, "kv_lora_rank is 512"),
        (_LLAMA, {"num_kv_shared_layers": 4}, "num_kv_shared_layers is 4"),
        (_LLAMA, {"sliding_window_layers": [0, 2]}, r"sliding_window_layers is \[0, 2\]"),
        (_LLAMA, {"use_qk_norm": True}, "use_qk_norm is True"),
        (_LLAMA, {"lm_head_bias": True}, "lm_head_bias is True"),
        (_LLAMA, {"per_layer_config": {"3": {"num_key_value_heads": 2}}}, "per_layer_config is"),
        (_MOE, {"n_shared_experts": 1}, "n_shared_experts is 1, which qwen3_moe"),
        (PRESETS["gpt2"], {"add_cross_attention": True}, "add_cross_attention is True"),
        (PRESETS["deepseek-v3"], {"index_head_dim": 128}, "index_head_dim is 128"),
        (PRESETS["deepseek-v3"], {"moe_layer_freq": 2}, "moe_layer_freq is not 1"),
        (PRESETS["mistral-7b"], {"qk_rope_head_dim": 64}, "qk_rope_head_dim is 64, which mistral"),
        (PRESETS["mistral-7b"], {"router_layers": 4}, "router_layers is 4"),
        (PRESETS["mistral-7b"], {"output_experts": 8}, "output_experts is 8"),
        (_LLAMA, {"ffn_hidden": 4096}, "ffn_hidden is 4096"),
        (_LLAMA, {"mamba_expand": 2}, "mamba_expand is 2"),
        (_LLAMA, {"ssm_expand": 2}, "ssm_expand is 2"),
        (_LLAMA, {"gated_mlp": False}, "gated_mlp is False"),
        (_LLAMA, {"use_glu": False}, "use_glu is False"),
        (PRESETS["gemma-2-9b"], {"tie_embeddings": False}, "tie_embeddings is False"),
        (_LLAMA, {"attention_sinks": True}, "attention_sinks is True"),
        (_LLAMA, {"memory_tokens": 16}, "memory_tokens is 16"),
        (_LLAMA, {"d_inner": 16}, "d_inner is 16"),
        # contradictions
        (_LLAMA, {"layer_types": ["full_attention"] * 31}, "layer_types names 31 layers, but there are 32"),
        (_LLAMA, {"layer_types": ["full_attention"] * 31 + ["mamba"]}, "layer_types has 'mamba'"),
        (_LLAMA, {"layer_types": [["full_attention"]] * 32}, r"layer_types has \['full_attention'\]"),
        (
            PRESETS["gemma-4-31b"],
            {"per_layer_config": {"3": 5}},
            "per_layer_config has 5 for layer 3, which is no object",
        ),
        (_LLAMA, {"num_key_value_heads": 5}, "32 attention heads cannot share 5 key-value heads"),
        (_LLAMA, {"num_key_value_heads": 64}, "32 attention heads cannot share 64"),
        (_LLAMA, {"num_attention_heads": 24}, "head_dim is missing, and 4096 elements cannot be shared by 24 heads"),
        (_LLAMA, {"intermediate_size": [14336] * 31}, "intermediate_size lists 31 layers, but there are 32"),
        (_MOE, {"num_experts_per_tok": 129}, "num_experts_per_tok is 129, but there are 128 experts"),
        (_MOE, {"num_local_experts": 64}, "num_experts is told as 64 and as 128"),
        (_MOE, {"num_experts": 0}, "num_experts is 0"),
        (_MOE, {"mlp_only_layers": [48]}, r"mlp_only_layers is \[48\]"),
        (PRESETS["deepseek-v3"], {"first_k_dense_replace": 62}, "first_k_dense_replace is 62"),
        # absurd numbers
        (_LLAMA, {"vocab_size": 0}, "vocab_size is 0"),
        (_LLAMA, {"num_hidden_layers": "32"}, "num_hidden_layers is '32', not a whole number"),
        (_LLAMA, {"hidden_size": -4096}, "hidden_size is -4096, not a whole number"),
        (_LLAMA, {"hidden_size": 4096.5}, "hidden_size is 4096.5, not a whole number"),
        (_LLAMA, {"intermediate_size": 10**10}, "intermediate_size is 10000000000, larger than any model"),
        (_LLAMA, {"num_hidden_layers": 10_001}, "num_hidden_layers is 10001, larger than any model"),
        (_LLAMA, {"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', neither true nor false"),
    ],
)
def test_what_cannot_be_is_named(base: Config, keys: Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_hf_config(base | keys)


_SIZES = ("layers", "experts", "head_dim", "n", "hidden", "size", "ffn", "expand", "sinks", "mlp", "mamba", "memory")
_OTHERS = (
    "rope",
    "router",
    "output",
    "scale",
    "token",
    "factor",
    "init",
    "clip",
    "loss",
    "mtp",
    "return",
    "prob",
    "foo",
)


@given(name=st.sampled_from(sorted(PRESETS)), size=st.sampled_from(_SIZES), other=st.sampled_from(_OTHERS))
def test_no_other_word_makes_a_size_harmless(name: str, size: str, other: str) -> None:
    for key in (f"{other}_{size}", f"{size}_{other}"):
        with pytest.raises(ValueError, match=f"{key} is 3"):
            from_hf_config(PRESETS[name] | {key: 3})


_ANYTHING = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=3)
)


@given(name=st.sampled_from(sorted(PRESETS)), data=st.data(), value=_ANYTHING)
def test_any_value_of_any_key_is_read_or_refused_in_words(name: str, data: st.DataObject, value: object) -> None:
    key = data.draw(st.sampled_from(sorted(PRESETS[name])))
    try:
        arch = from_hf_config({**PRESETS[name], key: value})
    except ValueError:
        return
    assert 0 < arch.n_layers <= 10_000
    assert arch.d_model > 0
