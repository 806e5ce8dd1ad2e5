"""Real models of each family, computed by transformers and, from the exported file, by llama.cpp."""

from __future__ import annotations

import copy
import ctypes
import sys
from typing import TYPE_CHECKING

import gguf
import llama_cpp
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from harness.errors import UserError
from harness.models.gguf_export import export

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("only_the_host")

# Largest relative L2 seen on these models, and a limit about three times that for the halves. f32: 3.5e-6, but 3e-4
# with GELU, which llama.cpp reads from a table of f16 values. f16: 5e-3. bf16: 4.7e-2, where transformers in bf16 is
# 2.4e-2 from its own float32. A mixture of experts is discontinuous (a rounding flips a choice): seen up to 8e-2.
# Every architecture in every format is in ../test_architectures.py.
LIMITS = {"f32": 1e-4, "f16": 1.5e-2, "bf16": 0.15}
EXPERTS_LIMIT = 0.25
GELU_LIMIT = 1e-3
GELU = ("gpt2", "gemma", "phi-")
TORCH_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
N_TOKENS = 200

SHAPE = {
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
}
# The original context is short, so that 200 positions reach far beyond it.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GPT2_SHAPE = {
    "vocab_size": 320,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 256,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
PADDED = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2, 1.5, 2.0, 3.0],
    "long_factor": [1.0, 1.5, 3.0, 6.0, 12.0, 24.0],
}
CONFIGS = {
    "llama": transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE, head_dim=32),
    "llama-biases": transformers.LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    "mistral": transformers.MistralConfig(**SHAPE, sliding_window=None, head_dim=24),
    "qwen2": transformers.Qwen2Config(**SHAPE, rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0}),
    "qwen3": transformers.Qwen3Config(**SHAPE, tie_word_embeddings=True, head_dim=32),
    "qwen3_moe": transformers.Qwen3MoeConfig(
        **SHAPE,
        head_dim=32,
        num_experts=12,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        norm_topk_prob=True,
    ),
    "gpt2": transformers.GPT2Config(**GPT2_SHAPE),
    "llama-linear": transformers.LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
    ),
    "mixtral": transformers.MixtralConfig(**SHAPE, num_local_experts=6, num_experts_per_tok=2),
    "gemma2": transformers.Gemma2Config(
        **SHAPE, head_dim=32, query_pre_attn_scalar=32, sliding_window=24, attn_logit_softcapping=2.0, pad_token_id=0
    ),
    "gemma3": transformers.Gemma3TextConfig(
        **SHAPE,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=24,
        sliding_window_pattern=2,
        pad_token_id=0,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    ),
    "phi": transformers.PhiConfig(**SHAPE),
    "phi3-tied": transformers.Phi3Config(**SHAPE, **PADDED, tie_word_embeddings=True),
    # Three quarters of each head are turned. The context of 256 below is longer than the first original length alone.
    "phi3-long": transformers.Phi3Config(
        **SHAPE, **PADDED, rope_parameters={**LONGROPE}, original_max_position_embeddings=64
    ),
    "phi3-short": transformers.Phi3Config(
        **SHAPE, **PADDED, rope_parameters={**LONGROPE}, original_max_position_embeddings=256
    ),
    "gpt2-untied": transformers.GPT2Config(**GPT2_SHAPE, tie_word_embeddings=False, n_inner=160),
}
IDS = np.random.default_rng(0).integers(0, SHAPE["vocab_size"], N_TOKENS)


@llama_cpp.llama_log_callback
def _silent(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    pass


llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))


class Models:
    """The models, made and saved once each, with weights so large that a mistake in any of them shows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: dict[str, torch.nn.Module] = {}

    def __getitem__(self, name: str) -> tuple[torch.nn.Module, Path]:
        directory = self.root / name
        if name not in self._made:
            model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]).eval()
            generator = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for key, weight in model.named_parameters():
                    noise = torch.randn(weight.shape, generator=generator)
                    if key.endswith("bias"):
                        weight.copy_(0.5 * noise)
                    elif weight.ndim == 1:
                        weight.copy_((0 if name.startswith("gemma") else 1) + 0.3 * noise)
                    else:
                        embedding = "embed" in key or "wte" in key or "wpe" in key
                        usual = 1 / 8 if name.startswith("gemma") else 1  # it multiplies by the root of 64
                        weight.copy_(noise * (usual if embedding else 1.5 / 64**0.5))
            model.save_pretrained(directory, max_shard_size="300KB")
            self._made[name] = model
        return self._made[name], directory


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    torch.set_num_threads(1)
    return Models(tmp_path_factory.mktemp("models"))


def transformers_logits(model: torch.nn.Module, weight_format: str) -> np.ndarray:
    """In float32, from weights rounded by torch."""
    rounded = copy.deepcopy(model).to(TORCH_DTYPES[weight_format]).float()
    with torch.no_grad():
        return rounded(torch.tensor(IDS)[None]).logits[0].numpy()


def llama_cpp_run(path: Path) -> tuple[np.ndarray, int, int]:
    """Logits of every position, and llama.cpp's own size and parameter count. The KV cache is f32."""
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
    assert model, f"llama.cpp refuses {path}"
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = 0
    context = llama_cpp.llama_init_from_model(model, params)
    assert context
    batch = llama_cpp.llama_batch_init(N_TOKENS, 0, 1)
    batch.n_tokens = N_TOKENS
    for i, token in enumerate(IDS):
        batch.token[i], batch.pos[i], batch.logits[i] = int(token), i, 1
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
    try:
        assert llama_cpp.llama_decode(context, batch) == 0
        n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        raw = llama_cpp.llama_get_logits(context)
        logits = np.ctypeslib.as_array(raw, shape=(N_TOKENS, n_vocab)).copy()
        return logits, llama_cpp.llama_model_size(model), llama_cpp.llama_model_n_params(model)
    finally:
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)


def relative_l2(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def exported(directory: Path, weight_format: str, to: Path) -> Path:
    path = to / f"{weight_format}.gguf"
    export(directory, path, weight_format)
    return path


@pytest.mark.parametrize(
    ("name", "weight_format"),
    [*((name, "f32") for name in CONFIGS), ("llama", "bf16"), ("gpt2", "f16"), ("qwen3_moe", "bf16")],
)
def test_llama_cpp_computes_what_transformers_computes(
    models: Models, name: str, weight_format: str, tmp_path: Path
) -> None:
    model, directory = models[name]
    logits, n_bytes, n_params = llama_cpp_run(exported(directory, weight_format, tmp_path))
    limit = max(LIMITS[weight_format], GELU_LIMIT if f"{name}-".startswith(GELU) else 0)
    if name == "qwen3_moe" and weight_format != "f32":
        limit = EXPERTS_LIMIT
    assert relative_l2(logits, transformers_logits(model, weight_format)) < limit

    # Half of a head's 32 or 12 rotated elements; LongRoPE has two sets.
    factors = {"llama": 16, "phi3-long": 2 * 6, "phi3-short": 2 * 6}.get(name, 0)
    assert n_params == sum(weight.numel() for weight in model.parameters()) + factors
    # Vectors, position embeddings and the router are kept as F32.
    width = TORCH_DTYPES[weight_format].itemsize
    assert n_bytes == 4 * factors + sum(
        weight.numel() * (4 if weight.ndim == 1 or "wpe" in key or ".gate.weight" in key else width)
        for key, weight in model.named_parameters()
    )


def unpermuted(tensors: dict[str, np.ndarray], directory: Path) -> None:
    for layer in range(3):
        for part in "qk":
            name = f"model.layers.{layer}.self_attn.{part}_proj.weight"
            tensors[f"blk.{layer}.attn_{part}.weight"][:] = weights(directory)[name].numpy()


def without_rope_factors(tensors: dict[str, np.ndarray], _: Path) -> None:
    tensors["rope_freqs.weight"][:] = 1


def without_a_bias(tensors: dict[str, np.ndarray], _: Path) -> None:
    tensors["blk.0.attn_q.bias"][:] = 0


def with_a_transposed_weight(tensors: dict[str, np.ndarray], _: Path) -> None:
    square = tensors["blk.1.attn_output.weight"]
    square[:] = square.T.copy()


def without_a_layer(tensors: dict[str, np.ndarray], _: Path) -> None:
    for name in ("attn_output.weight", "ffn_down.weight"):  # what a layer adds to the residual stream
        tensors[f"blk.1.{name}"][:] = 0


def with_experts_in_another_order(tensors: dict[str, np.ndarray], _: Path) -> None:
    experts = tensors["blk.1.ffn_up_exps.weight"]
    experts[:] = experts[::-1].copy()


def with_gate_and_up_swapped(tensors: dict[str, np.ndarray], _: Path) -> None:
    if "blk.0.ffn_gate_exps.weight" in tensors:
        gate, up = tensors["blk.0.ffn_gate_exps.weight"], tensors["blk.0.ffn_up_exps.weight"]
    else:
        gate, up = np.split(tensors["blk.0.ffn_up.weight"], 2)
    gate[:], up[:] = up.copy(), gate.copy()


def without_the_one(tensors: dict[str, np.ndarray], _: Path) -> None:
    for name in tensors:
        if name.endswith("norm.weight"):
            tensors[name] -= 1


def with_the_other_factors(tensors: dict[str, np.ndarray], _: Path) -> None:
    long, short = (tensors[f"rope_factors_{name}.weight"] for name in ("long", "short"))
    long[:], short[:] = short.copy(), long.copy()


@pytest.mark.parametrize(
    ("name", "mutate"),
    [
        ("mixtral", unpermuted),
        ("mixtral", with_gate_and_up_swapped),
        ("phi3-tied", with_gate_and_up_swapped),
        ("phi3-long", with_the_other_factors),
        ("phi3-short", with_the_other_factors),
        ("phi", without_a_bias),
        ("gemma2", without_the_one),
        ("gemma3", without_the_one),
        ("llama", unpermuted),
        ("mistral", unpermuted),
        ("llama", without_rope_factors),
        ("llama-biases", without_a_bias),
        ("qwen2", without_a_bias),
        ("qwen2", with_a_transposed_weight),
        ("gpt2", with_a_transposed_weight),
        ("qwen3", without_a_layer),
        ("qwen3_moe", with_experts_in_another_order),
    ],
)
def test_the_comparison_sees_mistakes(models: Models, name: str, mutate, tmp_path: Path) -> None:
    model, directory = models[name]
    path = exported(directory, "f32", tmp_path)
    reader = gguf.GGUFReader(path, "r+")
    mutate({tensor.name: tensor.data for tensor in reader.tensors}, directory)
    reader.data.flush()
    logits, _, _ = llama_cpp_run(path)
    assert relative_l2(logits, transformers_logits(model, "f32")) > 0.1


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return {key: weight for path in directory.glob("*.safetensors") for key, weight in load_file(path).items()}


@pytest.mark.parametrize("weight_format", ["f16", "bf16"])
def test_every_number_is_rounded_as_torch_rounds(models: Models, weight_format: str, tmp_path: Path) -> None:
    _, directory = models["qwen2"]
    path = exported(directory, weight_format, tmp_path)
    source = {key: weight.to(TORCH_DTYPES[weight_format]) for key, weight in weights(directory).items()}
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert len(tensors) == len(source)

    matrix = tensors["blk.2.ffn_gate.weight"]
    assert matrix.tensor_type.name == weight_format.upper()
    assert matrix.data.tobytes() == source["model.layers.2.mlp.gate_proj.weight"].view(torch.int16).numpy().tobytes()
    for gguf_name, key in (
        ("blk.0.attn_v.bias", "model.layers.0.self_attn.v_proj.bias"),
        ("output_norm.weight", "model.norm.weight"),
    ):
        assert tensors[gguf_name].tensor_type.name == "F32"
        np.testing.assert_array_equal(tensors[gguf_name].data, source[key].float().numpy())


@pytest.mark.parametrize("stored", ["f16", "bf16"])
def test_a_half_precision_checkpoint_widens_exactly(models: Models, stored: str, tmp_path: Path) -> None:
    model, _ = models["gpt2"]
    copy.deepcopy(model).to(TORCH_DTYPES[stored]).save_pretrained(tmp_path / "hf")
    logits, _, _ = llama_cpp_run(exported(tmp_path / "hf", "f32", tmp_path))
    assert relative_l2(logits, transformers_logits(model, stored)) < GELU_LIMIT


def test_the_names_and_buffers_of_the_published_gpt2(models: Models, tmp_path: Path) -> None:
    _, directory = models["gpt2"]
    old = {key.removeprefix("transformer."): weight for key, weight in weights(directory).items()}
    for layer in range(3):
        old[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 256, 256)
    (tmp_path / "old").mkdir()
    save_file(old, tmp_path / "old" / "model.safetensors")
    (tmp_path / "old" / "config.json").write_bytes((directory / "config.json").read_bytes())
    want, got = (
        {tensor.name: tensor.data for tensor in gguf.GGUFReader(exported(hf, "f32", to)).tensors}
        for hf, to in ((directory, tmp_path), (tmp_path / "old", tmp_path / "old"))
    )
    assert want.keys() == got.keys()
    for name, data in want.items():
        np.testing.assert_array_equal(got[name], data)


def test_progress_counts_the_tensors_bytes(models: Models, tmp_path: Path) -> None:
    _, directory = models["qwen3_moe"]
    seen: list[tuple[int, int]] = []
    export(directory, tmp_path / "model.gguf", "bf16", lambda done, total: seen.append((done, total)))
    total = sum(tensor.n_bytes for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors)
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def _rewritten(directory: Path, to: Path, changes: dict[str, torch.Tensor | None]) -> Path:
    tensors = weights(directory) | changes
    save_file({key: weight for key, weight in tensors.items() if weight is not None}, to / "model.safetensors")
    (to / "config.json").write_bytes((directory / "config.json").read_bytes())
    return to


@pytest.mark.parametrize(
    ("name", "key", "weight", "message"),
    [
        ("qwen2", "model.norm.weight", torch.full((64,), 1e5), "too large for f16"),
        ("qwen2", "model.layers.0.mlp.up_proj.weight", torch.full((96, 64), 1e5), "too large for f16"),
        ("qwen2", "model.layers.0.mlp.up_proj.weight", torch.ones(96, 64, dtype=torch.int8), "I8"),
        ("qwen2", "lm_head.weight", None, "tie_word_embeddings"),
        ("qwen2", "model.layers.3.input_layernorm.weight", torch.ones(64), "no tensor like model.layers.3"),
        ("qwen2", "transformer.wte.weight", torch.ones(320, 64), "same tensor"),
        ("qwen3_moe", "model.layers.1.mlp.experts.5.up_proj.weight", None, "11 experts"),
        ("qwen3_moe", "model.layers.1.mlp.experts.gate_up_proj", torch.ones(12, 64, 64), "no tensor like"),
    ],
)
def test_tensors_that_cannot_be_exported(
    models: Models, tmp_path: Path, name: str, key: str, weight: torch.Tensor | None, message: str
) -> None:
    directory = _rewritten(models[name][1], tmp_path, {key: weight})
    with pytest.raises(UserError, match=message):
        export(directory, tmp_path / "model.gguf", "f16")


def test_without_the_gguf_package(models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, directory = models["qwen2"]
    monkeypatch.setitem(sys.modules, "gguf", None)  # what Python itself looks up: the import fails
    with pytest.raises(UserError, match=r"pip install \"tokenroof\[llama\]\""):
        export(directory, tmp_path / "model.gguf", "f16")


def test_a_directory_without_config(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        export(tmp_path, tmp_path / "model.gguf", "f16")
