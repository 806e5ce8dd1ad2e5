"""The MLX backend, on the device that mlx has here, against transformers' float32 answers."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config, LlamaConfig, Qwen3Config, Qwen3MoeConfig

from backends import mlx
from backends.base import BackendError, LoadRequest, OutOfMemoryError
from backends.conformance import assert_conforms
from backends.mlx.errors import engine_errors

mx = pytest.importorskip("mlx.core", reason="mlx is not published for this system")
weights = pytest.importorskip("backends.mlx.weights", reason="mlx is not published for this system")

VOCAB = 512
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE, rope_parameters=LLAMA_3_ROPE, tie_word_embeddings=True),
    "gpt2": GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=320),
    "qwen3": Qwen3Config(**SHAPE, tie_word_embeddings=False),
    "qwen3_moe": Qwen3MoeConfig(
        **SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, decoder_sparse_step=1
    ),
    "wide": LlamaConfig(**SHAPE | {"hidden_size": 128, "num_attention_heads": 2, "head_dim": 64}),
    # A window that has turned over cannot be cut back: reset keeps nothing there.
    "gemma3_text": Gemma3TextConfig(
        **{**SHAPE, "num_hidden_layers": 3},
        sliding_window=16,
        sliding_window_pattern=3,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
}


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    """Transformers' own models and files of them, with no bias at zero and no norm at one."""
    made = {}
    for name, config in CONFIGS.items():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        directory = tmp_path_factory.mktemp(name)
        # mlx-lm reads gpt2 as OpenAI published it: without the prefix of the language model's class.
        (model.transformer if name == "gpt2" else model).save_pretrained(directory)
        made[name] = (directory, model)
    return made


def load(directory, weight_format="f32", **changes):
    return mlx.load(LoadRequest(directory, weight_format, **changes))


def random_tokens(n, batch=1):
    return np.random.default_rng(7).integers(VOCAB, size=(batch, n)).astype(np.int32)


def relative_l2(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("family", [name for name in CONFIGS if name != "wide"])
def test_it_conforms(artifacts, family):
    directory, _ = artifacts[family]
    assert_conforms(lambda: load(directory), tolerance=1e-4)


@pytest.mark.parametrize("family", CONFIGS)
def test_logits_are_those_of_transformers(artifacts, family):
    directory, model = artifacts[family]
    tokens = random_tokens(300)
    with torch.inference_mode():
        expected = model(torch.from_numpy(tokens).long()).logits.numpy()
    session = load(directory)
    session.allocate(300, batch=1)
    assert relative_l2(session.logits(tokens)[:, -20:], expected[:, -20:]) < 1e-4
    session.allocate(300, batch=1, kv_cache=False)
    recomputed = [int(ids[0]) for ids in session.recompute(tokens, 298)]
    assert recomputed == expected[0, 297:].argmax(-1).tolist()


@pytest.mark.parametrize("family", CONFIGS)
def test_facts_count_what_transformers_counts(artifacts, family):
    directory, model = artifacts[family]
    facts = load(directory).facts()
    assert facts.n_params == model.num_parameters()
    assert (facts.weight_format, facts.weight_bytes) == ("f32", 4 * facts.n_params)
    assert facts.kv_k_format == facts.kv_v_format == "f32"


@pytest.mark.parametrize(("weight_format", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_cast_weights_are_torchs_to_the_bit(artifacts, weight_format, dtype):
    directory, model = artifacts["qwen3"]
    session = load(directory, weight_format)
    facts = session.facts()
    assert (facts.weight_format, facts.weight_bytes) == (weight_format, 2 * facts.n_params)
    assert facts.kv_k_format == weight_format

    layer, reference = session._model.layers[1], model.model.layers[1]
    for ours, theirs in (
        (layer.self_attn.q_proj.weight, reference.self_attn.q_proj.weight),
        (layer.input_layernorm.weight, reference.input_layernorm.weight),
    ):
        assert np.array_equal(np.array(ours.astype(mx.float32)), theirs.detach().to(dtype).float().numpy())


def test_half_precision_conforms_within_its_rounding(artifacts):
    directory, _ = artifacts["llama"]
    assert_conforms(lambda: load(directory, "bf16"), tolerance=0.05)


def test_weights_stay_as_stored_when_no_format_is_asked(artifacts):
    directory, _ = artifacts["llama"]
    assert load(directory, None).facts().weight_format == "f32"


def test_the_cache_grows_by_256_tokens_and_its_bytes_are_counted(artifacts):
    directory, _ = artifacts["llama"]
    session = load(directory)
    session.allocate(400, batch=2)
    assert session.facts().kv_allocated_tokens == 512
    assert session.memory().kv_cache_bytes is None

    session.prefill(random_tokens(200, batch=2))
    assert session.facts().kv_allocated_tokens == 256
    keys_and_values, layers, kv_heads, head_dim, float32 = 2, 2, 2, 16, 4
    token_bytes = keys_and_values * layers * kv_heads * head_dim * float32
    assert session.memory().kv_cache_bytes == 2 * 256 * token_bytes

    session.prefill(random_tokens(200, batch=2))
    assert session.facts().kv_allocated_tokens >= 400


def test_what_the_engine_is_and_has(artifacts):
    info = mlx.describe()
    facts = load(artifacts["gpt2"][0]).facts()
    assert info.version == facts.backend_version
    assert "mlx-lm" in info.build
    assert facts.device == (info.accelerators[0].id if info.accelerators else "cpu")
    assert facts.gpu_layers_effective == (3 if info.accelerators else 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device": "tpu"}, "no device tpu"),
        ({"flash_attn": "on"}, "-fa auto"),
        ({"kv_k_format": "q8_0"}, "as f32 here, 8bit or 4bit: not q8_0 keys"),
        ({"engine_options": {"fast": True}}, "no engine option fast"),
    ],
)
def test_what_mlx_lacks_is_an_error(artifacts, change, reason):
    with pytest.raises(BackendError, match=reason):
        load(artifacts["llama"][0], **change)


def test_a_sliding_window_that_has_turned_over_keeps_nothing(artifacts):
    """And whatever is kept, another text after it gets the answers of a fresh prefill."""
    session = load(artifacts["gemma3_text"][0])
    session.allocate(64, batch=1)
    changed = random_tokens(40)
    changed[:, 8] = (changed[:, 8] + 1) % VOCAB
    fresh = session.logits(changed)
    session.reset()
    session.prefill(random_tokens(10))
    assert session.reset(8) == 8
    assert relative_l2(session.logits(changed[:, 8:]), fresh[:, 8:]) < 1e-5
    assert session.reset(40) == 40  # nothing is to be cut
    assert session.reset(8) == 0
    assert relative_l2(session.logits(changed), fresh) < 1e-5


@pytest.mark.parametrize(("weight_format", "scales"), [("bf16", ""), ("f32", "-f32")])
@pytest.mark.parametrize(("kv_format", "limit"), [("8bit", 0.05), ("4bit", 0.5)])
def test_a_quantised_cache_is_close_and_can_be_cut(artifacts, weight_format, scales, kv_format, limit):
    """Another text's logits would be at 1.4 times the norm."""
    directory = artifacts["wide"][0]
    exact = load(directory, weight_format)
    session = load(directory, weight_format, kv_k_format=kv_format, kv_v_format=kv_format)
    facts = session.facts()
    assert facts.kv_k_format == facts.kv_v_format == kv_format + scales
    tokens, changed = random_tokens(40, batch=2), random_tokens(40, batch=2)
    changed[:, 8] = (changed[:, 8] + 1) % VOCAB
    for each in (exact, session):
        each.allocate(40, batch=2)
        each.prefill(tokens)
        assert each.reset(8) == 8
    assert relative_l2(session.logits(changed[:, 8:]), exact.logits(changed[:, 8:])) < limit
    assert session.facts().engine_settings["kv_cache"] == ["QuantizedKVCache"]


@pytest.mark.parametrize(
    ("family", "asked", "reason"),
    [
        ("llama", {"kv_k_format": "8bit", "kv_v_format": "8bit"}, "8 bits of .*last dimension"),  # heads of 16
        ("gemma3_text", {"kv_k_format": "4bit", "kv_v_format": "4bit"}, "4 bits of .*RotatingKVCache"),
        ("wide", {"kv_k_format": "8bit", "kv_v_format": "4bit"}, "not 8bit keys and 4bit values"),
    ],
)
def test_a_cache_that_mlx_does_not_quantise_is_one_line(artifacts, family, asked, reason):
    with pytest.raises(BackendError, match=reason) as refused:
        load(artifacts[family][0], **asked)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("family", CONFIGS)
def test_without_a_kv_cache_the_lm_head_gets_the_last_position_alone(artifacts, family):
    model = load(artifacts[family][0])._model
    tokens = mx.array(random_tokens(9))
    whole = model(tokens)
    with weights.last_position_only(model):
        last = model(tokens)
    assert last.shape == (1, 1, VOCAB)
    assert relative_l2(np.array(last[:, 0]), np.array(whole[:, -1])) < 1e-5
    assert model(tokens).shape == (1, 9, VOCAB)


def test_without_a_kv_cache_none_is_held(artifacts):
    session = load(artifacts["llama"][0])
    session.allocate(40, batch=2, kv_cache=False)
    list(session.recompute(random_tokens(40, batch=2), 38))
    assert (session.memory().kv_cache_bytes, session.facts().kv_allocated_tokens) == (0, 0)


def test_its_own_kv_format_may_be_asked_for(artifacts):
    assert load(artifacts["llama"][0], kv_k_format="f32", kv_v_format="f32").facts().kv_k_format == "f32"


def test_a_context_beyond_the_models_positions_is_an_error(artifacts):
    session = load(artifacts["gpt2"][0])
    assert session.max_context == 320
    with pytest.raises(BackendError, match="320 tokens, not 321"):
        session.allocate(321, batch=1)


def write_config(directory, **config):
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


def one_line(error):
    text = str(error.value)
    return "\n" not in text and text.startswith("mlx-lm cannot load")


def test_an_unknown_architecture_is_one_line(artifacts, tmp_path):
    weights = artifacts["llama"][0] / "model.safetensors"
    (tmp_path / weights.name).write_bytes(weights.read_bytes())
    write_config(tmp_path, model_type="abacus")
    with pytest.raises(BackendError, match="abacus not supported") as error:
        load(tmp_path)
    assert one_line(error)


def test_missing_files_are_one_line_without_the_path(tmp_path):
    with pytest.raises(BackendError, match=r"config\.json") as error:
        load(tmp_path)
    assert one_line(error)

    write_config(tmp_path, model_type="llama")
    with pytest.raises(BackendError, match="No safetensors found") as error:
        load(tmp_path)
    assert one_line(error)
    assert str(tmp_path) not in str(error.value)


def test_a_models_own_code_is_not_run(artifacts, tmp_path):
    folder, ran = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(artifacts["llama"][0], folder)
    (folder / "theirs.py").write_text(f"open({str(ran)!r}, 'w')")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_file": "theirs.py"}))
    with pytest.raises(BackendError, match=r"^model needs Python code of its own \(model_file\), which is never run$"):
        load(folder)
    assert not ran.exists()


def test_a_folder_that_mlx_lm_takes_for_a_pattern_is_told(artifacts, tmp_path):
    folder = tmp_path / "model [q4]"
    shutil.copytree(artifacts["llama"][0], folder)
    with pytest.raises(BackendError, match=r"^model \[q4\]: mlx-lm takes .* rename the folder$"):
        load(folder)


def test_a_truncated_file_is_one_line(artifacts, tmp_path):
    source, _ = artifacts["llama"]
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    weights = (source / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(BackendError) as error:
        load(tmp_path)
    assert one_line(error)


def test_a_missing_tensor_is_one_line(artifacts, tmp_path):
    source, _ = artifacts["qwen3"]
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    tensors = dict(mx.load(str(source / "model.safetensors")))
    del tensors["lm_head.weight"]
    mx.save_safetensors(str(tmp_path / "model.safetensors"), tensors)
    with pytest.raises(BackendError, match="Missing 1 parameters") as error:
        load(tmp_path)
    assert one_line(error)


# MLX's own words on Metal and CUDA; a CPU build cannot raise them: it dies where malloc fails.
@pytest.mark.parametrize(
    "text",
    [
        "[metal::malloc] Attempting to allocate 99 bytes which is greater than the maximum allowed buffer size.",
        "[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackError)",
        "cudaMallocAsync(&data, size, stream) failed: out of memory",
    ],
)
def test_running_out_of_memory_has_its_own_error(text):
    with pytest.raises(OutOfMemoryError, match=r"^prefill failed: "), engine_errors("prefill failed"):
        raise RuntimeError(text)
