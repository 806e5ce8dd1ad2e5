"""Weights without a file, against published sizes, llama.cpp's own choice of formats and mlx-lm's conversion."""

import ctypes
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.models.presets import PRESETS
from harness.roofline.hf_config import from_hf_config
from harness.roofline.mixtures import MIXTURES
from harness.roofline.nominal import WEIGHT_FORMATS, is_quantised, misfits, nominal_weights
from harness.roofline.traffic import parameter_count
from harness.roofline.weights import Use, Weights

Config = dict[str, Any]

_QWEN2_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
_QWEN2_14B = _QWEN2_7B | {
    "hidden_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "intermediate_size": 13824,
}
_TINYLLAMA = PRESETS["llama-2-7b"] | {
    "hidden_size": 2048,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "intermediate_size": 5632,
}
_GEMMA3_4B = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "num_hidden_layers": 34,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "intermediate_size": 10240,
    "vocab_size": 262208,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 131072,
}


def _gpt_oss(n_layers: int, n_experts: int) -> Config:
    return {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "num_hidden_layers": n_layers,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 2880,
        "num_local_experts": n_experts,
        "num_experts_per_tok": 4,
        "vocab_size": 201088,
        "sliding_window": 128,
        "attention_bias": True,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }


@pytest.mark.parametrize(
    ("config", "weight_format", "published_gib"),
    [
        # Sizes that llama-bench printed for the files of published benchmarks: two digits.
        (PRESETS["llama-2-7b"], "Q4_0", 3.56),
        (PRESETS["llama-2-7b"], "Q4_1", 3.95),
        (PRESETS["llama-2-7b"], "Q5_0", 4.33),
        (PRESETS["llama-2-7b"], "Q8_0", 6.67),
        (PRESETS["llama-3.1-8b"], "Q4_K_M", 4.58),
        (PRESETS["llama-3.1-8b"], "F16", 14.96),
        (PRESETS["llama-3.1-70b"], "Q4_K_M", 39.59),
        (PRESETS["llama-3.2-3b"], "Q4_K_M", 1.87),
        (PRESETS["mistral-7b"] | {"vocab_size": 32000}, "Q4_0", 3.83),
        (_TINYLLAMA, "Q4_0", 0.59),
        (_QWEN2_7B, "Q8_0", 7.54),
        (_QWEN2_7B, "Q4_K_M", 4.36),
        (_QWEN2_14B, "Q4_K_M", 8.37),
        (PRESETS["qwen3-30b-a3b"], "Q8_0", 30.25),
        (_gpt_oss(24, 32), "MXFP4", 11.27),
        (_gpt_oss(36, 128), "MXFP4", 59.02),
    ],
)
def test_published_sizes(config: Config, weight_format: str, published_gib: float) -> None:
    assert nominal_weights(from_hf_config(config), weight_format).n_bytes / 2**30 == pytest.approx(
        published_gib, abs=0.005
    )


def test_by_pencil() -> None:
    # The embedding is the LM head; one layer; every matrix has rows of 256, so q4_0 is 18 bytes for 32 numbers.
    config = PRESETS["llama-3.2-1b"] | {
        "hidden_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 1000,
    }
    arch = from_hf_config(config)
    attention, feed_forward, embedding, norms = 2 * 256 * 256 + 2 * 256 * 128, 3 * 256 * 512, 1000 * 256, 3 * 256
    matrices = attention + feed_forward
    assert nominal_weights(arch, "f16").n_bytes == 2 * (matrices + embedding + norms)
    assert nominal_weights(arch, "q4_0").n_bytes == matrices * 18 // 32 + embedding * 210 // 256 + 4 * norms
    assert nominal_weights(arch, "4bit").n_bytes == (matrices + embedding) * 36 // 64 + 2 * norms
    assert nominal_weights(arch, "4bit-g32").n_bytes == (matrices + embedding) * 20 // 32 + 2 * norms
    assert nominal_weights(arch, "fp8").n_bytes == matrices + 2 * (embedding + norms)


def test_gpt_oss_as_it_was_published() -> None:
    weights = nominal_weights(from_hf_config(_gpt_oss(24, 32)), "mxfp4_bf16")
    assert weights.n_bytes == pytest.approx(
        13.76e9, rel=0.001
    )  # model.safetensors.index.json: total_size 13 761 264 768


def test_an_unknown_format_is_told_with_its_neighbours() -> None:
    with pytest.raises(ValueError, match=r"unknown format 'q4_km'; there is .*q4_k_m"):
        nominal_weights(from_hf_config(PRESETS["gpt2-mini"]), "q4_km")


@pytest.mark.parametrize("preset", PRESETS)
def test_every_format_holds_every_parameter(preset: str) -> None:
    arch = from_hf_config(PRESETS[preset])
    f32 = nominal_weights(arch, "f32")
    for name in sorted(WEIGHT_FORMATS):
        weights = nominal_weights(arch, name)
        assert weights.n_params == parameter_count(arch)
        assert f32.n_bytes / 32 < weights.n_bytes <= f32.n_bytes


# --- llama.cpp's own choice. Its quantiser tells, in a dry run, what it would make of each tensor; the model is a file
# --- of holes with a real header, so that one of 140 GB takes no longer than a small one.


def _llama_table(config: Config) -> dict[str, tuple[int, ...]]:
    """Shapes of a GGUF file's tensors, rows first, of Llama and of what is built like it."""
    d_model, d_ff = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or d_model // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    n_experts = config.get("num_experts") or config.get("num_local_experts")
    d_expert = config.get("moe_intermediate_size", d_ff)
    table = {"token_embd.weight": (d_model, config["vocab_size"]), "output_norm.weight": (d_model,)}
    if not config["tie_word_embeddings"]:
        table["output.weight"] = (d_model, config["vocab_size"])
    for i in range(config["num_hidden_layers"]):
        shapes = {
            "attn_norm": (d_model,),
            "attn_q": (d_model, queries),
            "attn_k": (d_model, keys),
            "attn_v": (d_model, keys),
            "attn_output": (queries, d_model),
            "ffn_norm": (d_model,),
        }
        if n_experts:
            shapes |= {
                "ffn_gate_inp": (d_model, n_experts),
                "ffn_gate_exps": (d_model, d_expert, n_experts),
                "ffn_up_exps": (d_model, d_expert, n_experts),
                "ffn_down_exps": (d_expert, d_model, n_experts),
            }
        else:
            shapes |= {"ffn_gate": (d_model, d_ff), "ffn_up": (d_model, d_ff), "ffn_down": (d_ff, d_model)}
        table |= {f"blk.{i}.{name}.weight": shape for name, shape in shapes.items()}
    return table


def _llama_keys(config: Config) -> dict[str, float]:
    keys = {
        "context_length": 4096,
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": config["vocab_size"],
    }
    if n_experts := config.get("num_experts") or config.get("num_local_experts"):
        keys |= {"expert_count": n_experts, "expert_used_count": config["num_experts_per_tok"]}
    if "moe_intermediate_size" in config:
        keys["expert_feed_forward_length"] = config["moe_intermediate_size"]
    return keys


def _write_header(path: Path, arch: str, keys: dict[str, float], table: dict[str, tuple[int, ...]]) -> None:
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{arch}.{key}", value)
    data_bytes = 0
    for name, shape in table.items():
        kept = len(shape) == 1 or "ffn_gate_inp" in name or name == "position_embd.weight"
        element = gguf.GGMLQuantizationType.F32 if kept else gguf.GGMLQuantizationType.F16
        n_bytes = prod(shape) * (4 if kept else 2)
        writer.add_tensor_info(name, shape[::-1], np.dtype(np.float32), n_bytes, element)
        data_bytes += -(-n_bytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 32 + data_bytes)


_TENSOR = re.compile(r"\] (\S+) +- \[([\d, ]+)\], type = +(\w+), size = [^\n(]*(?:\((\w+)\))?\n")
_FALLBACK = re.compile(r"warning: (\S+) +- ncols .*falling back to +(\w+)")
_SIZES = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
_NEEDS_IMPORTANCE = {"q2_k_s", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m", "iq3_xxs"}


@pytest.fixture(scope="module")
def log() -> Iterator[list[str]]:
    pieces: list[str] = []
    callback = llama_cpp.llama_log_callback(lambda _, text, __: pieces.append(text.decode()))
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    yield pieces
    llama_cpp.llama_log_set(llama_cpp.llama_log_callback(0), ctypes.c_void_p(0))


def _llama_cpp_bytes(path: Path, mixture: str, log: list[str]) -> dict[str, int]:
    """What each tensor would take after llama.cpp quantised the file."""
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{mixture.upper()}")
    parameters.dry_run = True
    parameters.nthread = 1
    importance = (llama_cpp.llama_model_imatrix_data * 2)()
    if mixture in _NEEDS_IMPORTANCE:
        values = (ctypes.c_float * 1)(1.0)
        importance[0].name, importance[0].data, importance[0].size = b"any", values, 1
        parameters.imatrix = importance
    log.clear()
    assert llama_cpp.llama_model_quantize(str(path).encode(), b"never-written.gguf", ctypes.byref(parameters)) == 0
    chosen = {}
    for name, shape, before, after in _TENSOR.findall("".join(log)):
        block_elements, block_bytes = _SIZES[(after or before).lower()]
        chosen[name] = prod(int(size) for size in shape.split(",")) // block_elements * block_bytes
    return chosen


def _our_bytes(weights: Weights, renamed: dict[str, str] | None = None) -> dict[str, int]:
    """By GGUF's names, matrices only."""
    found: dict[str, int] = defaultdict(int)
    for part in weights.parts:
        name = (renamed or {}).get(part.name, part.name)
        prefix = "" if part.layer is None else f"blk.{part.layer}."
        found[f"{prefix}{name}.weight"] += part.n_bytes
    return {name: n_bytes for name, n_bytes in found.items() if "vectors" not in name and "norm" not in name}


def _matrices(chosen: dict[str, int]) -> dict[str, int]:
    return {name: n_bytes for name, n_bytes in chosen.items() if "norm" not in name}


_MIXTRAL = PRESETS["llama-2-7b"] | {
    "model_type": "mixtral",
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize(
    ("arch", "config"),
    [
        ("llama", PRESETS["llama-2-7b"]),
        ("llama", PRESETS["llama-3.1-8b"]),
        ("llama", PRESETS["llama-3.1-70b"]),
        ("llama", PRESETS["llama-3.2-1b"]),
        ("llama", _MIXTRAL),
        ("qwen2", _QWEN2_7B),
        ("qwen2", _QWEN2_7B | {"num_hidden_layers": 80}),
        ("qwen2", _QWEN2_7B | {"num_hidden_layers": 80, "num_key_value_heads": 28}),
        ("llama", PRESETS["llama-3.1-70b"] | {"num_key_value_heads": 64}),
        ("qwen3", PRESETS["qwen3-0.6b"]),
        ("qwen3moe", PRESETS["qwen3-30b-a3b"]),
    ],
    ids=lambda value: (
        value if isinstance(value, str) else f"{value['num_hidden_layers']}x{value['num_key_value_heads']}"
    ),
)
def test_each_tensor_gets_llama_cpps_format(
    arch: str, config: Config, mixture: str, tmp_path: Path, log: list[str]
) -> None:
    path = tmp_path / "model.gguf"
    _write_header(path, arch, _llama_keys(config), _llama_table(config))
    ours = nominal_weights(from_hf_config(config), mixture)
    assert _our_bytes(ours) == _matrices(_llama_cpp_bytes(path, mixture, log))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mixture=st.sampled_from(sorted(MIXTURES)),
    n_layers=st.integers(1, 40),
    heads=st.sampled_from([(4, 4), (4, 2), (8, 2), (5, 1)]),
    head_dim=st.sampled_from([32, 64, 80, 100, 256]),
    d_ff=st.sampled_from([128, 256, 300, 1000, 2880]),
    n_experts=st.sampled_from([0, 4, 8, 16]),
    tied=st.booleans(),
)
def test_any_shape_gets_llama_cpps_formats(
    tmp_path: Path,
    log: list[str],
    mixture: str,
    n_layers: int,
    heads: tuple[int, int],
    head_dim: int,
    d_ff: int,
    n_experts: int,
    tied: bool,
) -> None:
    config = PRESETS["llama-2-7b"] | {
        "hidden_size": heads[0] * head_dim,
        "num_hidden_layers": n_layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "intermediate_size": d_ff,
        "vocab_size": 512,
        "tie_word_embeddings": tied,
    }
    if n_experts:
        config |= {"model_type": "mixtral", "num_local_experts": n_experts, "num_experts_per_tok": 2}
    path = tmp_path / "model.gguf"
    _write_header(path, "llama", _llama_keys(config), _llama_table(config))
    ours = nominal_weights(from_hf_config(config), mixture)
    assert _our_bytes(ours) == _matrices(_llama_cpp_bytes(path, mixture, log))


@pytest.mark.parametrize("mixture", MIXTURES)
def test_gpt2s_fused_attention(mixture: str, tmp_path: Path, log: list[str]) -> None:
    d_model = 768
    table: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (d_model, 50257),
        "position_embd.weight": (d_model, 1024),
        "output_norm.weight": (d_model,),
    }
    for i in range(12):
        table |= {
            f"blk.{i}.attn_norm.weight": (d_model,),
            f"blk.{i}.attn_qkv.weight": (d_model, 3 * d_model),
            f"blk.{i}.attn_output.weight": (d_model, d_model),
            f"blk.{i}.ffn_up.weight": (d_model, 4 * d_model),
            f"blk.{i}.ffn_down.weight": (4 * d_model, d_model),
        }
    keys = {
        "context_length": 1024,
        "embedding_length": d_model,
        "block_count": 12,
        "feed_forward_length": 4 * d_model,
        "attention.head_count": 12,
        "attention.layer_norm_epsilon": 1e-5,
        "vocab_size": 50257,
    }
    path = tmp_path / "model.gguf"
    _write_header(path, "gpt2", keys, table)
    ours = nominal_weights(from_hf_config(PRESETS["gpt2"]), mixture)
    fused = dict.fromkeys(("attn_q", "attn_k", "attn_v"), "attn_qkv")
    assert _our_bytes(ours, fused) == _matrices(_llama_cpp_bytes(path, mixture, log))


_DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 6,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_deepseeks_latent_attention(mixture: str, tmp_path: Path, log: list[str]) -> None:
    d_model, d_expert, n_experts = 7168, 2048, 256
    table: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (d_model, 129280),
        "output_norm.weight": (d_model,),
        "output.weight": (d_model, 129280),
    }
    for i in range(6):
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm": (d_model,),
            "attn_q_a": (d_model, 1536),
            "attn_q_b": (1536, 128 * 192),
            "attn_kv_a_mqa": (d_model, 512 + 64),
            "attn_k_b": (128, 512, 128),
            "attn_v_b": (512, 128, 128),
            "attn_output": (128 * 128, d_model),
        }
        if i < 3:
            shapes |= {"ffn_gate": (d_model, 18432), "ffn_up": (d_model, 18432), "ffn_down": (18432, d_model)}
        else:
            shapes |= {
                "ffn_gate_inp": (d_model, n_experts),
                "ffn_gate_exps": (d_model, d_expert, n_experts),
                "ffn_up_exps": (d_model, d_expert, n_experts),
                "ffn_down_exps": (d_expert, d_model, n_experts),
                "ffn_gate_shexp": (d_model, d_expert),
                "ffn_up_shexp": (d_model, d_expert),
                "ffn_down_shexp": (d_expert, d_model),
            }
        table |= {f"blk.{i}.{name}.weight": shape for name, shape in shapes.items()}
    keys = {
        "context_length": 4096,
        "embedding_length": d_model,
        "block_count": 6,
        "feed_forward_length": 18432,
        "attention.head_count": 128,
        "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.q_lora_rank": 1536,
        "attention.kv_lora_rank": 512,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "leading_dense_block_count": 3,
        "expert_count": n_experts,
        "expert_used_count": 8,
        "expert_shared_count": 1,
        "expert_feed_forward_length": d_expert,
        "rope.dimension_count": 64,
        "vocab_size": 129280,
    }
    path = tmp_path / "model.gguf"
    _write_header(path, "deepseek2", keys, table)
    theirs = _matrices(_llama_cpp_bytes(path, mixture, log))
    ours = nominal_weights(from_hf_config(_DEEPSEEK), mixture)
    assert _our_bytes(ours) == {name.replace("_shexp", ""): n_bytes for name, n_bytes in theirs.items()}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_misfits_are_what_llama_cpp_itself_calls_fallbacks(mixture: str, tmp_path: Path, log: list[str]) -> None:
    # 576 wide is 18 blocks of 32 and no whole number of 256; the feed-forward network's 1536 is six of 256.
    config = PRESETS["llama-2-7b"] | {
        "hidden_size": 576, "num_hidden_layers": 8, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 1536, "vocab_size": 512,
    }  # fmt: skip
    path = tmp_path / "model.gguf"
    _write_header(path, "llama", _llama_keys(config), _llama_table(config))
    sizes = _llama_cpp_bytes(path, mixture, log)
    expected: Counter[str] = Counter()
    for name, element in dict(_FALLBACK.findall("".join(log))).items():
        expected[element.lower()] += sizes[name]
    if _SIZES[MIXTURES[mixture]][0] == 256:
        expected["q8_0"] += sizes["output.weight"]  # by a rule of its own, of which it does not warn
    found, all_bytes = misfits(from_hf_config(config), mixture)
    assert found == expected
    assert all_bytes == nominal_weights(from_hf_config(config), mixture).n_bytes


def test_rows_shorter_than_every_block_stay_as_they_are() -> None:
    # 16 wide, 48 in the feed-forward network: 32 divides neither; 64 wide is enough for blocks of 32 and no more.
    small = PRESETS["llama-2-7b"] | {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    small |= {"intermediate_size": 48}
    assert not is_quantised(from_hf_config(small), "q4_0")
    assert not is_quantised(from_hf_config(small), "4bit")
    wider = small | {"hidden_size": 32}
    assert is_quantised(from_hf_config(wider), "q4_k_m")
    assert is_quantised(from_hf_config(wider), "4bit-g32")
    assert not is_quantised(from_hf_config(wider), "4bit")


def test_experts_are_routed_and_the_rest_is_not() -> None:
    weights = nominal_weights(from_hf_config(PRESETS["qwen3-30b-a3b"]), "q8_0")
    routed = sum(part.n_bytes for part in weights.parts if part.use is Use.ROUTED)
    assert routed == 48 * 128 * 3 * 2048 * 768 * 34 // 32
