"""What is said to be allocated, against llama.cpp's own log and torch's own profiler.

llama.cpp is asked to plan its buffers without allocating them, so that it does so for models of their real size.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import gguf
import llama_cpp
import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

from backends.base import LoadRequest
from backends.llama_cpp.engine_log import EngineLog, buffer_bytes
from backends.llama_cpp.session import LlamaCppSession
from backends.torch.session import TorchSession
from harness.models.artifacts import prepare
from harness.models.presets import PRESETS
from harness.models.source import resolve
from harness.roofline.architecture import Attention
from harness.roofline.hf_config import from_hf_config
from harness.roofline.placement import Needs, needs
from harness.roofline.weights import Weight, Weights, tensors_of
from harness.roofline.workspace import LlamaCpp, Torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.roofline.architecture import Architecture

pytestmark = pytest.mark.usefixtures("only_the_host")

MIB = 2**20
SMALLER = {"num_hidden_layers": 2, "vocab_size": 2000, "hidden_size": 512, "intermediate_size": 2048}
FAMILIES = {
    "llama-2-7b": "llama",
    "llama-3.1-8b": "llama",
    "llama-3.1-70b": "llama",
    "llama-3.2-1b": "llama",
    "qwen3-0.6b": "qwen3",
    "qwen3-32b": "qwen3",
    "qwen3-30b-a3b": "qwen3moe",
    "gemma-3-4b": "gemma3",
}
GGML_F16, GGML_Q8_0 = 1, 8
ELEMENT_BYTES = {GGML_F16: 2, GGML_Q8_0: 34 / 32}
_KV_SIZE = re.compile(r"llama_kv_cache: size = +([\d.]+) MiB")


def in_bf16(arch: Architecture) -> Weights:
    parts = tuple(Weight(t.name, t.layer, t.n_elements, 2 * t.n_elements, t.use) for t in tensors_of(arch))
    return Weights(arch, parts)


def shapes(arch: Architecture, family: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a GGUF file's tensors, for the families that are tested here."""
    d = arch.d_model
    yield "token_embd", (arch.vocab_size, d)
    yield "output_norm", (d,)
    if not arch.tied_embeddings:
        yield "output", (arch.vocab_size, d)
    for index, layer in enumerate(arch.layers):
        attention, network = layer.mixer, layer.feed_forward
        assert isinstance(attention, Attention)
        queries, keys = attention.n_heads * attention.head_dim, attention.n_kv_heads * attention.head_dim
        block: dict[str, tuple[int, ...]] = {
            "attn_norm": (d,),
            "attn_q": (queries, d),
            "attn_k": (keys, d),
            "attn_v": (keys, d),
            "attn_output": (d, queries),
            "ffn_norm": (d,),
        }
        if family != "llama":
            block |= {"attn_q_norm": (attention.head_dim,), "attn_k_norm": (attention.head_dim,)}
        if family == "gemma3":
            block |= {"post_attention_norm": (d,), "post_ffw_norm": (d,)}
        if n := network.n_experts:
            wide, back = (n, network.d_expert, d), (n, d, network.d_expert)
            block |= {"ffn_gate_inp": (n, d), "ffn_gate_exps": wide, "ffn_up_exps": wide, "ffn_down_exps": back}
        else:
            block |= {"ffn_gate": (network.d_ff, d), "ffn_up": (network.d_ff, d), "ffn_down": (d, network.d_ff)}
        yield from ((f"blk.{index}.{name}", shape) for name, shape in block.items())


def write_hollow_gguf(path: Path, arch: Architecture, family: str) -> None:
    """A GGUF file of this shape in bf16, the tensors' data a hole that takes no disk."""
    attention, network = arch.layers[0].mixer, arch.layers[0].feed_forward
    assert isinstance(attention, Attention)
    writer = gguf.GGUFWriter(path, family)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_context_length(arch.max_context or 0)
    writer.add_embedding_length(arch.d_model)
    writer.add_block_count(arch.n_layers)
    writer.add_feed_forward_length(network.d_ff or network.d_expert)
    writer.add_head_count(attention.n_heads)
    writer.add_head_count_kv(attention.n_kv_heads)
    writer.add_key_length(attention.head_dim)
    writer.add_value_length(attention.value_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(arch.vocab_size)
    if arch.window:
        writer.add_sliding_window(arch.window)
    if network.n_experts:
        writer.add_expert_count(network.n_experts)
        writer.add_expert_used_count(network.n_experts_used)
        writer.add_expert_feed_forward_length(network.d_expert)
    writer.add_tokenizer_model("no_vocab")
    size = 0
    for name, shape in shapes(arch, family):
        vector = len(shape) == 1
        n_bytes = int(np.prod(shape)) * (4 if vector else 2)
        kind = gguf.GGMLQuantizationType.F32 if vector else gguf.GGMLQuantizationType.BF16
        writer.add_tensor_info(f"{name}.weight", shape, np.dtype(np.float32 if vector else np.float16), n_bytes, kind)
        size += -(-n_bytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    os.truncate(path, -(-path.stat().st_size // 32) * 32 + size)


@dataclass(frozen=True)
class Setting:
    context: int = 4096
    batch: int = 1
    n_ubatch: int = 512
    kv_type: int = GGML_F16


def planned_by_llama_cpp(path: Path, setting: Setting) -> Needs:
    log = EngineLog()
    log.attach(llama_cpp)
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model_params.load_mode = 0  # no mapping of a file that is a hole
    model_params.no_alloc = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
    assert model, log.take_errors()
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_seq_max = setting.context * setting.batch, setting.batch
    params.n_batch = max(2048, setting.n_ubatch)
    params.n_ubatch = setting.n_ubatch
    params.type_k = params.type_v = setting.kv_type
    params.swa_full = False
    context = llama_cpp.llama_init_from_model(model, params)
    assert context, log.take_errors()
    uses = buffer_bytes(log.text())["CPU"]
    kv_bytes = round(sum(float(size) for size in _KV_SIZE.findall(log.text())) * MIB)
    found = Needs(llama_cpp.llama_model_size(model), kv_bytes, uses["compute"] + uses["output"])
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return found


SETTINGS = [
    Setting(512),
    Setting(4096),
    Setting(32_768),
    Setting(1000, batch=8),
    Setting(n_ubatch=64),
    Setting(n_ubatch=2048),
    Setting(kv_type=GGML_Q8_0),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hollow")


@pytest.mark.parametrize(("name", "setting"), list(itertools.product(FAMILIES, SETTINGS)))
def test_needs_are_those_that_llama_cpp_plans(folder: Path, name: str, setting: Setting) -> None:
    arch = from_hf_config(PRESETS[name])
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_hollow_gguf(path, arch, FAMILIES[name])
    found = planned_by_llama_cpp(path, setting)
    ours = needs(
        in_bf16(arch),
        context=setting.context,
        batch=setting.batch,
        k_element_bytes=ELEMENT_BYTES[setting.kv_type],
        engine=LlamaCpp(setting.n_ubatch),
    )
    assert ours.weight_bytes == pytest.approx(found.weight_bytes, rel=0.001)  # its norms are f32
    assert ours.kv_bytes == pytest.approx(found.kv_bytes, rel=0.001)  # it logs two decimals
    assert ours.workspace_bytes == pytest.approx(found.workspace_bytes, rel=0.05, abs=MIB)
    assert ours.total_bytes == pytest.approx(found.total_bytes, rel=0.02)


def test_a_mask_of_a_long_context_outgrows_the_logits(tmp_path: Path) -> None:
    arch = from_hf_config(PRESETS["llama-3.1-8b"])
    path = tmp_path / "hollow.gguf"
    write_hollow_gguf(path, arch, "llama")
    for context in (131_072, 262_144):
        found = planned_by_llama_cpp(path, Setting(context))
        ours = LlamaCpp().workspace_bytes(arch, context)
        assert ours == pytest.approx(found.workspace_bytes, rel=0.02)
    assert found.kv_bytes == 32 * 2**30  # 256 Ki tokens of 128 KiB
    assert found.workspace_bytes > 512 * (4 * arch.vocab_size) * 1.3


def test_needs_of_a_model_that_llama_cpp_has_really_loaded() -> None:
    source = resolve("gpt2-mini")
    artifact = prepare(source, "gguf", "bf16")
    session = LlamaCppSession(LoadRequest(artifact.path, "bf16", device="cpu"))
    session.allocate(256, 4)
    facts = session.facts()
    buffers: dict[str, dict[str, int]] = facts.engine_settings["buffers"]
    session.close()
    ours = needs(in_bf16(source.architecture), context=256, batch=4)
    logged = {use: sum(uses.get(use, 0) for uses in buffers.values()) for use in ("kv", "compute", "output")}
    assert facts.weight_bytes == pytest.approx(ours.weight_bytes, rel=0.01)  # norms and positions in f32
    assert logged["kv"] == pytest.approx(ours.kv_bytes, abs=MIB / 100)
    assert logged["compute"] + logged["output"] == pytest.approx(ours.workspace_bytes, rel=0.02)
    assert facts.weight_bytes + sum(logged.values()) == pytest.approx(ours.total_bytes, rel=0.02)


@pytest.mark.parametrize(
    ("name", "changed", "prompt", "batch"),
    [
        ("gpt2-mini", {}, 200, 2),
        ("llama-3.2-1b", SMALLER, 512, 1),
        ("llama-3.2-1b", SMALLER, 64, 4),
        ("llama-3.2-1b", SMALLER | {"intermediate_size": 4096}, 300, 1),
        ("qwen3-0.6b", SMALLER, 512, 1),
        ("qwen3-30b-a3b", SMALLER | {"num_experts": 16}, 256, 1),
    ],
)
def test_needs_are_those_that_torch_allocates(name: str, changed: dict[str, int], prompt: int, batch: int) -> None:
    # The special tokens lie beyond a vocabulary that is made smaller.
    config = PRESETS[name] | changed | {"bos_token_id": None, "eos_token_id": None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.bfloat16)
    session = TorchSession(model, LoadRequest(artifact=None, weight_format="bf16", device="cpu"))  # type: ignore[arg-type]
    context = prompt + 32
    session.allocate(context, batch)
    tokens = np.arange(batch * prompt, dtype=np.int32).reshape(batch, prompt) % 2000
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        session.prefill(tokens)
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    steps = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    peak_bytes = max(itertools.accumulate(steps))

    arch = from_hf_config(config)
    ours = needs(in_bf16(arch), context=context, batch=batch, engine=Torch(prompt))
    assert ours.weight_bytes == session.facts().weight_bytes
    assert ours.kv_bytes == session.memory().kv_cache_bytes
    assert ours.workspace_bytes == pytest.approx(peak_bytes, rel=0.03)


def test_windows_in_the_caches_that_engines_allocate() -> None:
    arch = from_hf_config(PRESETS["gemma-3-4b"])  # 29 layers with a window of 1024, 5 without; 4096 B a token and layer
    token, context = 4 * 256 * 2 * 2, 32_768
    assert LlamaCpp(512).kv_cache_bytes(arch, context) == token * (5 * context + 29 * 1536)
    assert Torch(512).kv_cache_bytes(arch, context) == token * 34 * context
    assert LlamaCpp(512).kv_cache_bytes(arch, 1000) == token * 34 * 1024
    assert LlamaCpp(512).kv_cache_bytes(arch, context, 3, layers=range(5, 6)) == 3 * token * context


@pytest.mark.parametrize("wrong", [0, -1])
def test_absurd_numbers_are_named(wrong: int) -> None:
    with pytest.raises(ValueError, match="n_ubatch"):
        LlamaCpp(wrong)
    with pytest.raises(ValueError, match="prompt"):
        Torch(wrong)
    with pytest.raises(ValueError, match="element_bytes"):
        replace(Torch(1), element_bytes=wrong)
