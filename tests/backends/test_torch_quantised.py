"""Quantised weights in torch: through torchao, and as checkpoints have them; bytes by pencil."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch._dynamo.utils import counters
from torchao.quantization import Int8WeightOnlyConfig

from backends import torch as torch_backend
from backends.base import BackendError, LoadRequest
from backends.torch import torchao_formats
from backends.torch.weights import plain_weights, quantised_weights

WIDTH, FFN, VOCAB, LAYERS = 128, 256, 320, 2
# Queries, keys, values, output, and the feed-forward network's three: rows and columns.
MATRICES = LAYERS * [(128, 128), (64, 128), (64, 128), (128, 128), (256, 128), (256, 128), (128, 256)]
NUMBERS = sum(rows * columns for rows, columns in MATRICES)
ROWS = sum(rows for rows, _ in MATRICES)
KEPT = 2 * VOCAB * WIDTH + (2 * LAYERS + 1) * WIDTH  # input embedding, LM head, norms
# A scale of four bytes to a row, and a zero point of one that torchao keeps though it is 0; a pair of bf16 to 128.
BYTES = {"int8": NUMBERS + 5 * ROWS + 2 * KEPT, "int4": NUMBERS // 2 + NUMBERS // 128 * 4 + 2 * KEPT}
LLAMA = {
    "hidden_size": WIDTH, "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": VOCAB, "max_position_embeddings": 256,
    "initializer_range": 0.1, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip


def _saved(folder, config):
    torch.manual_seed(1)
    transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return _saved(tmp_path_factory.mktemp("llama"), transformers.LlamaConfig(**LLAMA))


@pytest.fixture(scope="module")
def by_torchao(llama, tmp_path_factory):
    """Quantised and saved by transformers itself."""
    how = transformers.TorchAoConfig(Int8WeightOnlyConfig())
    model = transformers.AutoModelForCausalLM.from_pretrained(llama, quantization_config=how, dtype="auto")
    folder = tmp_path_factory.mktemp("torchao")
    model.save_pretrained(folder)
    return folder


def load(artifact, weight_format=None, **options):
    return torch_backend.load(LoadRequest(artifact, weight_format, device="cpu", engine_options=options))


def draw(n):
    return np.random.default_rng(0).integers(VOCAB, size=(1, n)).astype(np.int32)


@pytest.mark.parametrize("weight_format", ["int8", "int4"])
def test_facts_are_a_pencils(llama, weight_format):
    session = load(llama, weight_format)
    facts, held = session.facts(), session.held()
    assert (facts.weight_format, facts.n_params, facts.weight_bytes) == (
        weight_format,
        NUMBERS + KEPT,
        BYTES[weight_format],
    )
    assert facts.kv_k_format == "bf16"
    assert sum(module.n_params for module in held) == facts.n_params
    assert sum(module.n_bytes for module in held) == facts.weight_bytes
    by_name = {module.name: module for module in held}
    assert by_name["lm_head.weight"].n_bytes == by_name["model.embed_tokens.weight"].n_bytes == 2 * VOCAB * WIDTH
    assert sum(json.loads(json.dumps(facts.engine_settings))["weight_types"].values()) == facts.weight_bytes


@pytest.mark.parametrize(("weight_format", "step_of", "group"), [("int8", 127.5, None), ("int4", 15, 128)])
def test_a_weight_is_moved_by_half_a_step_at_the_most(llama, weight_format, step_of, group):
    session = load(llama, weight_format)
    layer = session._model.model.layers[1].mlp.down_proj
    with torch.inference_mode():
        used = layer(torch.eye(FFN, dtype=torch.bfloat16)).T.float()
    exact = load_file(llama / "model.safetensors")["model.layers.1.mlp.down_proj.weight"].float()
    groups = exact.view(WIDTH, -1, group or FFN)
    span = groups.amax(-1) - groups.amin(-1) if group else 2 * groups.abs().amax(-1)
    moved = (used.view_as(groups) - groups).abs().amax(-1)
    # Beside half a step: the result is rounded to bf16, and so is the quotient of 0 to 15, to a sixteenth.
    assert (moved <= span / step_of * (0.5 + 1 / 16) + groups.abs().amax(-1) * 2**-7).all()
    assert moved.max() > 0.25 * (span / step_of).max() / 2, "it is quantised at all"


def test_int8_steps_are_compiled_and_expand_no_weight(llama):
    session = load(llama, "int8")
    session.allocate(24, 1)
    tokens = draw(24)
    expected = session.logits(tokens)[0]
    session.reset()
    session.prefill(tokens[:, :8])
    counters.clear()
    answers = [ids.copy()[0] for ids in session.decode(tokens[:, 8:])]
    # torch's int8 product, which reads a weight as it is, in place of each of the casts.
    assert counters["inductor"]["woq_matcher_count"] == len(MATRICES)
    facts = session.facts()
    assert (facts.engine_mode, facts.engine_settings["decode_products"]) == ("compiled", "fused")
    assert facts.engine_settings["torch_mode"] == "auto"
    scores = np.take_along_axis(expected[8:], np.array(answers)[:, None], 1)[:, 0]
    np.testing.assert_allclose(scores, expected[8:].max(-1), atol=0.05 * np.abs(expected).max())


def test_eager_int8_steps_say_that_they_expand_their_weights(llama):
    session = load(llama, "int8", torch_mode="eager")
    session.allocate(8, 1)
    assert len(list(session.decode(draw(2)))) == 2
    facts = session.facts()
    assert (facts.engine_mode, facts.kv_allocated_tokens) == ("eager", 8)
    assert facts.engine_settings["decode_products"] == "expanded to bf16 in every pass"


def test_a_tied_head_stays_and_counts_once(tmp_path):
    tied = _saved(tmp_path, transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True))
    facts = load(tied, "int8").facts()
    assert facts.n_params == NUMBERS + KEPT - VOCAB * WIDTH
    assert facts.weight_bytes == BYTES["int8"] - 2 * VOCAB * WIDTH


def test_int4_takes_the_largest_group_that_divides_every_row(tmp_path):
    narrow = _saved(tmp_path, transformers.LlamaConfig(**LLAMA | {"intermediate_size": 192}))
    session = load(narrow, "int4")
    assert session.facts().engine_settings["int4_group"] == 64
    assert {parameter.dim() for parameter in session._model.parameters()} == {1, 2}


def _refusals():
    gpt2 = {"n_layer": 1, "n_head": 2, "n_embd": 64, "vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": None}
    experts = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}
    llama = transformers.LlamaConfig(**LLAMA)
    return {
        "no product on a CPU": (llama, "fp8", r"fp8 weights need a GPU of compute capability 8\.9"),
        "no such format": (llama, "q4_0", r"loads f64, f32, f16, bf16, int8, int4, fp8 weights, not q4_0"),
        "convolutions": (transformers.GPT2Config(**gpt2), "int8", r"4 of this model's matrices .*\.h\.0\.attn\.c_attn"),
        "experts": (transformers.Qwen3MoeConfig(**LLAMA, **experts), "int8", r"matrices .*experts"),
        "odd rows": (transformers.LlamaConfig(**LLAMA | {"intermediate_size": 200}), "int4", "divide no row of 200"),
    }


@pytest.mark.parametrize(("config", "weight_format", "message"), _refusals().values(), ids=_refusals())
def test_what_torchao_cannot_make_is_refused_in_one_line(tmp_path, config, weight_format, message):
    config.save_pretrained(tmp_path)  # and no weights: it is refused before they are read
    with pytest.raises(BackendError, match=message) as refused:
        load(tmp_path, weight_format)
    assert "\n" not in str(refused.value)


def test_cuda_devices_are_judged_by_their_capability(monkeypatch):
    ampere = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    told = {name: torchao_formats._obstacle(name, ampere) for name in torchao_formats.NAMES}
    assert told == {"int8": None, "int4": None, "fp8": "fp8 weights need compute capability 8.9; cuda:0 has 8.0"}


def test_a_checkpoint_of_torchao_is_what_torchao_makes_here(llama, by_torchao):
    tokens = draw(16)
    answers = []
    for artifact, weight_format in ((by_torchao, None), (llama, "int8")):
        session = load(artifact, weight_format, torch_mode="eager")
        session.allocate(16, 1)
        answers.append(session.logits(tokens))
        facts = session.facts()
        assert (facts.n_params, facts.weight_bytes) == (NUMBERS + KEPT, BYTES["int8"])
    np.testing.assert_allclose(*answers, rtol=1e-3, atol=1e-3)
    assert load(by_torchao).facts().weight_format == "torchao-8bit"
    with pytest.raises(BackendError, match="weights quantised by torchao cannot become bf16"):
        load(by_torchao, "bf16")


def test_a_package_that_is_missing_is_named_in_one_line(llama, tmp_path):
    config = json.loads((llama / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "aqlm"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BackendError, match=r"cannot load .*: Using `aqlm` quantization requires") as refused:
        load(tmp_path)
    assert "\n" not in str(refused.value)


class Packed(torch.nn.Module):
    """A linear layer as GPTQ keeps it: eight numbers of four bits to a word, groups of 32."""

    def __init__(self, layer):
        super().__init__()
        columns, rows = layer.in_features, layer.out_features
        self.register_buffer("qweight", torch.zeros(columns // 8, rows, dtype=torch.int32))
        self.register_buffer("qzeros", torch.zeros(columns // 32, rows // 8, dtype=torch.int32))
        self.register_buffer("scales", torch.zeros(columns // 32, rows, dtype=torch.float16))
        self.register_buffer("g_idx", torch.zeros(columns, dtype=torch.int32))


def _model():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).to(torch.bfloat16)


def _in_layers(model, change):
    for module in model.model.layers.modules():
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, change(child))
    return model


def test_packed_modules_hold_the_parameters_of_their_matrices():
    weights = quantised_weights(_in_layers(_model(), Packed), "gptq", _model())
    # Four bits, and to 32 numbers a scale of 16 and a zero point of 4; an index of four bytes to a column.
    columns = sum(columns for _, columns in MATRICES)
    assert (weights.name, weights.plain, weights.n_params) == ("gptq-4bit", "bf16", NUMBERS + KEPT)
    assert weights.n_bytes == NUMBERS * (4 + 20 / 32) / 8 + 4 * columns + 2 * KEPT


def test_expanded_weights_are_plain_whatever_their_files_were():
    def with_scale(layer):
        layer.weight_scale = torch.nn.Parameter(torch.ones(layer.out_features, 1))
        return layer

    weights = quantised_weights(_in_layers(_model(), with_scale), "compressed-tensors", _model())
    assert (weights.name, weights.settings["expanded_from"]) == ("bf16", "compressed-tensors")
    assert weights.held == plain_weights(_model()).held
    assert weights.n_bytes == 2 * (NUMBERS + KEPT)
