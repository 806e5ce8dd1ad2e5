"""The torch backend against plain transformers: a float32 forward pass over the whole sequence, without a cache."""

import json
import logging
import warnings

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from backends import torch as torch_backend
from backends.base import BackendError, LoadRequest
from backends.conformance import assert_conforms

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,  # wide enough that a wrong mask or position changes the argmax
    "bos_token_id": None,
    "eos_token_id": None,
}
EXPERTS = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
CONFIGS = {
    "llama": transformers.LlamaConfig(**SMALL),
    "llama-tied": transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=24),
    "qwen3-moe": transformers.Qwen3MoeConfig(**SMALL, **EXPERTS, head_dim=16),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=6),  # shorter than the sequences here
    "gpt2": transformers.GPT2Config(
        n_layer=2, n_head=4, n_embd=64, n_positions=320, vocab_size=101, bos_token_id=None, eos_token_id=None
    ),
}


@pytest.fixture(scope="session", params=CONFIGS)
def artifact(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(1)
    transformers.AutoModelForCausalLM.from_config(CONFIGS[request.param]).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(1)
    transformers.AutoModelForCausalLM.from_config(CONFIGS["llama"]).save_pretrained(folder)
    return folder


def load(artifact, weight_format="f32", **request):
    return torch_backend.load(LoadRequest(artifact, weight_format, **{"device": "cpu"} | request))


def plain_logits(artifact, tokens):
    """`[batch, n, vocab]`, by transformers alone."""
    model = transformers.AutoModelForCausalLM.from_pretrained(artifact, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.from_numpy(tokens.astype(np.int64)), use_cache=False).logits.numpy()


def draw(batch, n, seed=0):
    return np.random.default_rng(seed).integers(101, size=(batch, n)).astype(np.int32)


@pytest.mark.parametrize("batch", [1, 3])
def test_prefill_and_decode_answer_as_a_plain_forward_pass(artifact, batch):
    tokens = draw(batch, 20)
    expected = plain_logits(artifact, tokens).argmax(-1)
    session = load(artifact)
    session.allocate(20, batch)

    np.testing.assert_array_equal(session.prefill(tokens[:, :9]), expected[:, 8])
    np.testing.assert_array_equal(session.prefill(tokens[:, 9:12]), expected[:, 11])
    answers = [ids.copy() for ids in session.decode(tokens[:, 12:])]
    np.testing.assert_array_equal(np.stack(answers, axis=1), expected[:, 12:])

    assert session.reset(10) == 10
    np.testing.assert_array_equal(next(session.decode(tokens[:, 10:11])), expected[:, 10])

    session.allocate(20, batch, kv_cache=False)
    answers = [ids.copy() for ids in session.recompute(tokens, 4)]
    np.testing.assert_array_equal(np.stack(answers, axis=1), expected[:, 3:])


def test_logits_are_those_of_a_plain_forward_pass(artifact):
    tokens = draw(2, 16)
    session = load(artifact)
    session.allocate(16, batch=2)
    first, second = session.logits(tokens[:, :5]), session.logits(tokens[:, 5:])
    np.testing.assert_allclose(
        np.concatenate([first, second], axis=1), plain_logits(artifact, tokens), rtol=1e-3, atol=1e-4
    )


def test_it_conforms(llama):
    assert_conforms(lambda: load(llama), tolerance=1e-4)


@pytest.mark.parametrize("weight_format", ["f32", "f16", "bf16"])
def test_facts_count_what_is_loaded(artifact, weight_format):
    session = load(artifact, weight_format)
    facts = session.facts()
    model = transformers.AutoModelForCausalLM.from_pretrained(artifact)
    element = {"f32": 4, "f16": 2, "bf16": 2}[weight_format]

    assert facts.n_params == model.num_parameters()
    assert facts.weight_bytes == model.num_parameters() * element
    assert facts.weight_format == facts.kv_k_format == facts.kv_v_format == weight_format
    assert (facts.device, facts.gpu_layers_effective, facts.engine_mode) == ("cpu", 0, "eager")
    assert facts.backend_version == torch.__version__
    assert transformers.__version__ in facts.engine_build
    assert json.loads(json.dumps(facts.engine_settings))["torch_mode"] == "auto"


def test_the_cache_is_exactly_as_large_as_asked(llama):
    session = load(llama)
    session.allocate(40, batch=3)
    assert session.facts().kv_allocated_tokens == 40
    # 2 tensors x 2 layers x 3 sequences x 2 heads x 40 tokens x 16 numbers x 4 bytes
    assert session.memory().kv_cache_bytes == 2 * 2 * 3 * 2 * 40 * 16 * 4


def test_without_a_kv_cache_none_is_held(llama):
    session = load(llama)
    session.allocate(40, batch=3)
    session.allocate(40, batch=3, kv_cache=False)
    list(session.recompute(draw(3, 40), 38))
    assert (session.memory().kv_cache_bytes, session.facts().kv_allocated_tokens) == (0, 0)


def test_without_a_format_the_artifact_says_it(llama):
    assert load(llama, None).facts().weight_format == "f32"


def test_threads_are_those_asked_for(llama):
    before = torch.get_num_threads()
    try:
        assert load(llama, n_threads=2).facts().n_threads == 2
    finally:
        torch.set_num_threads(before)


def test_nothing_is_warned_logged_or_printed(artifact, caplog, capfd):
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        session = load(artifact, "bf16")
        session.allocate(12, batch=2)
        session.prefill(draw(2, 4))
        list(session.decode(draw(2, 4)))
        session.logits(draw(2, 4))
        session.close()
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"device": "cuda:99"}, "cuda:99"),
        ({"flash_attn": "on"}, "flash attention"),
        ({"kv_k_format": "q8_0"}, "q8_0"),
        ({"kv_v_format": "f16"}, "f16"),
        ({"n_gpu_layers": 1}, "whole model"),
        ({"weight_format": "q4_0"}, "q4_0"),
        ({"engine_options": {"torch_mode": "fast"}}, "fast"),
        ({"engine_options": {"torch_mode": "cuda-graph"}}, "CUDA"),
        ({"engine_options": {"unknown": 1}}, "unknown"),
    ],
)
def test_a_request_that_cannot_be_honoured_is_refused_in_one_line(llama, request_, message):
    with pytest.raises(BackendError, match=message) as refused:
        load(llama, **request_)
    assert "\n" not in str(refused.value)


def test_an_unknown_architecture_is_named_with_the_version(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "quagga", "architectures": ["QuaggaForCausalLM"]}')
    with pytest.raises(BackendError, match="quagga") as refused:
        load(tmp_path)
    assert transformers.__version__ in str(refused.value)


def test_a_model_with_another_state_than_keys_and_values_is_refused(tmp_path):
    transformers.MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=8).save_pretrained(tmp_path)
    transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(tmp_path)).save_pretrained(
        tmp_path
    )
    with pytest.raises(BackendError, match="mamba"):
        load(tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "absent", "lacking"])
def test_a_damaged_file_is_an_error(llama, tmp_path, damage):
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    weights = (llama / "model.safetensors").read_bytes()
    if damage == "truncated":
        (tmp_path / "model.safetensors").write_bytes(weights[:-1000])
    elif damage == "lacking":
        tensors = load_file(llama / "model.safetensors")
        del tensors["model.layers.1.mlp.up_proj.weight"]
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BackendError) as refused:
        load(tmp_path)
    assert "\n" not in str(refused.value)
    assert damage != "lacking" or "up_proj" in str(refused.value)


def test_a_pickle_is_not_read_where_safetensors_have_an_unusual_name(llama, tmp_path):
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    (tmp_path / "weights.safetensors").write_bytes((llama / "model.safetensors").read_bytes())
    torch.save(load_file(llama / "model.safetensors"), tmp_path / "pytorch_model.bin")
    with pytest.raises(BackendError, match="safetensors"):
        load(tmp_path)


def test_more_than_the_model_or_the_cache_holds_is_an_error(llama):
    session = load(llama)
    with pytest.raises(BackendError, match="512"):
        session.allocate(513, batch=1)
    session.allocate(8, batch=1)
    with pytest.raises(BackendError, match="9 tokens"):
        session.prefill(draw(1, 9))


def test_describe_tells_the_versions_and_finds_no_accelerator_on_a_cpu_build():
    info = torch_backend.describe()
    assert info.version == torch.__version__
    assert f"transformers {transformers.__version__}" in info.build
    assert len(info.accelerators) == torch.accelerator.device_count()
