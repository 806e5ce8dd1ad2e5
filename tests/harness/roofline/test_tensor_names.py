"""What names say, against names of published files and the models that transformers builds."""

from typing import Any

import pytest
import torch
import transformers

from harness.roofline.hf_config import from_hf_config
from harness.roofline.tensor_names import part_of, without_expert
from harness.roofline.traffic import parameter_count, streamed_parameters
from harness.roofline.weights import Use


@pytest.mark.parametrize(
    ("name", "layer", "use"),
    [
        # Checkpoints.
        ("model.layers.3.mlp.up_proj.weight", 3, Use.READ),
        ("model.layers.3.mlp.experts.5.up_proj.weight", 3, Use.ROUTED),
        ("model.layers.3.mlp.experts.5.up_proj.weight_scale_inv", 3, Use.ROUTED),
        ("model.layers.3.mlp.experts.gate_up_proj", 3, Use.ROUTED),
        ("model.layers.3.mlp.experts.gate_up_proj_blocks", 3, Use.ROUTED),
        ("model.layers.3.mlp.experts.gate_up_proj_scales", 3, Use.ROUTED),
        ("model.layers.3.mlp.experts.down_proj_bias", 3, Use.ROUTED),
        ("model.layers.3.mlp.switch_mlp.up_proj.scales", 3, Use.ROUTED),
        ("model.layers.3.block_sparse_moe.experts.0.w1.weight", 3, Use.ROUTED),
        ("model.layers.3.block_sparse_moe.gate.weight", 3, Use.READ),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", 3, Use.READ),
        ("model.layers.3.mlp.shared_expert.up_proj.weight", 3, Use.READ),
        ("model.layers.3.mlp.shared_expert_gate.weight", 3, Use.READ),
        ("model.layers.3.mlp.gate.e_score_correction_bias", 3, Use.READ),
        ("model.layers.3.mlp.router.weight", 3, Use.READ),
        ("model.layers.3.self_attn.q_proj.qzeros", 3, Use.READ),
        ("model.layers.3.self_attn.q_proj.biases", 3, Use.READ),
        ("model.language_model.layers.3.linear_attn.conv1d.weight", 3, Use.READ),
        ("transformer.h.3.attn.c_attn.weight", 3, Use.READ),
        ("h.3.attn.c_attn.bias", 3, Use.READ),
        ("model.layers.4.mlp.up_proj.weight", None, Use.IDLE),
        ("model.layers.4.mlp.experts.5.up_proj.weight", None, Use.IDLE),
        ("mtp.layers.0.mlp.up_proj.weight", None, Use.IDLE),
        ("model.visual.blocks.3.attn.qkv.weight", None, Use.IDLE),
        ("visual.merger.mlp.0.weight", None, Use.IDLE),
        ("vision_tower.vision_model.encoder.layers.3.mlp.fc1.weight", None, Use.IDLE),
        ("model.audio_tower.layers.3.fc1.weight", None, Use.IDLE),
        ("multi_modal_projector.linear_1.weight", None, Use.IDLE),
        ("model.embed_vision.embedding_projection.weight", None, Use.IDLE),
        ("model.embed_tokens.weight", None, Use.LOOKED_UP),
        ("model.embed_tokens.scales", None, Use.LOOKED_UP),
        ("language_model.model.embed_tokens.weight", None, Use.LOOKED_UP),
        ("wte.weight", None, Use.LOOKED_UP),
        ("transformer.wpe.weight", None, Use.LOOKED_UP),
        ("model.embed_tokens_per_layer.weight", None, Use.LOOKED_UP),
        ("model.norm.weight", None, Use.READ),
        ("lm_head.weight", None, Use.READ),
        # GGUF.
        ("blk.3.ffn_up.weight", 3, Use.READ),
        ("blk.3.ffn_up_exps.weight", 3, Use.ROUTED),
        ("blk.3.ffn_gate_up_exps.weight", 3, Use.ROUTED),
        ("blk.3.ffn_down_exps.bias", 3, Use.ROUTED),
        ("blk.3.ffn_gate.7.weight", 3, Use.ROUTED),
        ("blk.3.ffn_up_shexp.weight", 3, Use.READ),
        ("blk.3.ffn_gate_inp.weight", 3, Use.READ),
        ("blk.3.exp_probs_b.bias", 3, Use.READ),
        ("blk.4.nextn.eh_proj.weight", None, Use.IDLE),
        ("v.blk.3.attn_q.weight", None, Use.IDLE),
        ("mm.0.weight", None, Use.IDLE),
        ("token_embd.weight", None, Use.LOOKED_UP),
        ("per_layer_token_embd.weight", None, Use.LOOKED_UP),
        ("position_embd.weight", None, Use.LOOKED_UP),
        ("per_layer_model_proj.weight", None, Use.READ),
        ("rope_freqs.weight", None, Use.READ),
        ("output_norm.weight", None, Use.READ),
        ("output.weight", None, Use.READ),
    ],
)
def test_a_name_of_an_untied_model_of_four_layers(name: str, layer: int | None, use: Use) -> None:
    assert part_of(name, 4, tied=False) == (layer, use)


@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.embed_tokens.scales", "transformer.wte.weight", "token_embd.weight"]
)
def test_a_tied_embedding_is_read(name: str) -> None:
    assert part_of(name, 4, tied=True) == (None, Use.READ)


@pytest.mark.parametrize("name", ["model.embed_tokens_per_layer.weight", "wpe.weight", "per_layer_token_embd.weight"])
def test_other_tables_are_looked_up_all_the_same(name: str) -> None:
    assert part_of(name, 4, tied=True) == (None, Use.LOOKED_UP)


@pytest.mark.parametrize("name", ["lm_head.weight", "h.0.attn.bias", "h.0.attn.masked_bias", "rotary_emb.inv_freq"])
def test_what_no_engine_loads_is_no_weight(name: str) -> None:
    assert part_of(name, 4, tied=True) is None


def test_experts_of_a_layer_are_one() -> None:
    assert without_expert("model.layers.3.mlp.experts.5.up_proj.weight") == "model.layers.3.mlp.experts.up_proj.weight"
    assert without_expert("blk.3.ffn_gate.7.weight") == "blk.3.ffn_gate.weight"
    assert without_expert("model.layers.3.mlp.up_proj.weight") == "model.layers.3.mlp.up_proj.weight"


_SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "head_dim": 16,
}


@pytest.mark.parametrize(
    ("model_type", "more"),
    [
        ("gpt2", {"n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 100, "n_positions": 32}),
        ("llama", _SMALL | {"tie_word_embeddings": False}),
        ("llama", _SMALL | {"tie_word_embeddings": True}),
        ("mixtral", _SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2}),
        ("qwen3_moe", _SMALL | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
        ("gpt_oss", _SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2}),
        ("gemma3_text", _SMALL | {"sliding_window": 16}),
        (
            "deepseek_v3",
            _SMALL
            | {
                "num_key_value_heads": 4,
                "q_lora_rank": 24,
                "kv_lora_rank": 16,
                "qk_nope_head_dim": 16,
                "qk_rope_head_dim": 8,
                "v_head_dim": 16,
                "moe_intermediate_size": 32,
                "n_routed_experts": 8,
                "n_shared_experts": 1,
                "num_experts_per_tok": 2,
                "first_k_dense_replace": 1,
                "n_group": 2,
                "topk_group": 1,
            },
        ),
    ],
)
def test_a_models_names_add_up_to_its_shape(model_type: str, more: dict[str, Any]) -> None:
    config = transformers.AutoConfig.for_model(model_type, **more)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    arch = from_hf_config(config.to_dict())
    found = dict.fromkeys(Use, 0)
    streamed = 0.0
    for name, tensor in model.named_parameters():
        part = part_of(name, arch.n_layers, tied=arch.tied_embeddings)
        assert part is not None
        layer, use = part
        found[use] += tensor.numel()
        network = arch.layers[layer or 0].feed_forward
        share = network.n_experts_used / network.n_experts if use is Use.ROUTED else float(use is Use.READ)
        streamed += share * tensor.numel()
    assert sum(found.values()) == parameter_count(arch)
    assert found[Use.IDLE] == 0
    assert streamed == pytest.approx(streamed_parameters(arch))
