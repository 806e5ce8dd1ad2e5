"""Where the parts of a model are, when some of it is on another device: a real one, over RPC on loopback."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import llama_cpp
from backends.base import Accelerator, BackendError, LoadRequest
from backends.conformance import assert_conforms
from backends.llama_cpp import engine_log, placement, rpc, tensor_sizes, tiers

MIB = 2**20
RESOLUTION = MIB // 100  # llama.cpp's log has two decimals of a MiB
LAYERS = 4  # and an output layer
KV_BYTES = 512 * 2 * 64 * 2  # a layer's: 512 tokens, a key and a value of 64 elements of f16


@pytest.fixture(scope="module")
def dense(llama_file):
    return llama_file()


@pytest.fixture(scope="module")
def experts(llama_file):
    return llama_file(n_experts=4)


@pytest.fixture
def request_for(endpoint):
    return lambda path, **changes: LoadRequest(path, "f32", rpc=(endpoint,), **changes)


def facts_of(request, allocate=True):
    session = llama_cpp.load(request)
    if allocate:
        session.allocate(512, 1)
    facts = session.facts()
    session.close()
    return facts


def of_layer(tensors, layer):
    return sum(size for name, size in tensors.items() if name.startswith(f"blk.{layer}."))


def output_bytes(tensors):
    return tensors["output_norm.weight"] + tensors.get("output.weight", tensors["token_embd.weight"])


@pytest.mark.parametrize("asked", [0, 1, 3, 5, 99, -1])
def test_every_layer_and_byte_is_where_it_was_asked(dense, request_for, asked):
    path, tensors = dense
    facts = facts_of(request_for(path, n_gpu_layers=asked))
    on_device = min(asked if asked >= 0 else 99, LAYERS + 1)
    layers = tuple(range(LAYERS + 1 - on_device, LAYERS + 1))  # the output layer first, then the last ones
    weights = sum(of_layer(tensors, layer) for layer in layers) + (output_bytes(tensors) if layers else 0)
    assert facts.gpu_layers_effective == on_device
    host, *others = facts.tiers
    assert (host.memory, host.layers) == ("cpu", tuple(range(LAYERS + 1 - on_device)))
    assert host.kv_bytes == pytest.approx((LAYERS - max(on_device - 1, 0)) * KV_BYTES, abs=RESOLUTION)
    assert host.weight_bytes == pytest.approx(sum(tensors.values()) - weights, abs=RESOLUTION)
    if not on_device:
        assert (facts.device, others) == ("cpu", [])
        return
    (device,) = others
    assert device.memory == facts.device
    assert device.layers == layers
    assert device.weight_bytes == pytest.approx(weights, abs=RESOLUTION)
    assert device.kv_bytes == pytest.approx((on_device - 1) * KV_BYTES, abs=RESOLUTION)


def test_it_conforms_over_two_tiers(dense, request_for):
    path, _ = dense
    request = request_for(path, n_gpu_layers=3)
    assert_conforms(lambda: llama_cpp.load(request), tolerance=1e-2)


def test_a_tied_output_layer_is_a_copy_on_the_device(llama_file, request_for):
    path, tensors = llama_file(tied=True)
    _, device = facts_of(request_for(path, n_gpu_layers=1)).tiers
    assert device.layers == (LAYERS,)
    assert device.weight_bytes == pytest.approx(output_bytes(tensors), abs=RESOLUTION)


def test_layers_that_the_log_calls_offloaded_are_not_where_their_bytes_are_not(dense, endpoint, monkeypatch):
    """The device is registered, and not listed in the model's parameters: llama.cpp loads everything into the host."""
    path, tensors = dense
    rpc.connect((endpoint,))
    monkeypatch.setattr(placement, "placement", lambda _: ([], -1))
    logged = []
    monkeypatch.setattr(engine_log, "load_mode", logged.append)
    facts = facts_of(LoadRequest(path, "f32"))
    assert f"offloaded {LAYERS + 1}/{LAYERS + 1} layers to GPU" in logged[0]
    assert (facts.device, facts.gpu_layers_effective) == ("cpu", 0)
    (host,) = facts.tiers
    assert host.layers == tuple(range(LAYERS + 1))
    assert host.weight_bytes == pytest.approx(sum(tensors.values()), abs=RESOLUTION)


def test_experts_of_the_first_layers_stay_with_the_host(experts, request_for):
    path, tensors = experts
    facts = facts_of(request_for(path, n_cpu_moe=2))
    kept = sum(size for name, size in tensors.items() if "_exps" in name and name.startswith(("blk.0.", "blk.1.")))
    host, device = facts.tiers
    assert facts.gpu_layers_effective == LAYERS + 1
    assert facts.engine_settings["n_cpu_moe"] == 2
    assert host.weight_bytes >= kept + tensors["token_embd.weight"] - RESOLUTION
    expected = sum(tensors.values()) - kept - tensors["token_embd.weight"]
    assert device.weight_bytes == pytest.approx(expected, abs=RESOLUTION)


def test_more_layers_of_experts_than_there_are_is_all_of_them(experts, request_for):
    path, _ = experts
    assert facts_of(request_for(path, n_cpu_moe=50)).engine_settings["n_cpu_moe"] == LAYERS


def test_the_kv_cache_can_stay_with_the_host(dense, request_for):
    path, _ = dense
    facts = facts_of(request_for(path, kv_offload=False))
    host, device = facts.tiers
    assert (host.kv_bytes, device.kv_bytes) == (pytest.approx(LAYERS * KV_BYTES, abs=RESOLUTION), 0)
    assert facts.engine_settings["offload_kqv"] is False


def test_the_split_in_effect_is_told(dense, request_for):
    path, _ = dense
    settings = facts_of(request_for(path, split_mode="none")).engine_settings
    assert (settings["split_mode"], settings["tensor_split"]) == ("none", [])
    assert facts_of(request_for(path, tensor_split=(2.0,))).engine_settings["tensor_split"] == [2.0]


def test_two_devices_share_by_the_split(dense, endpoint, start_server):
    path, _ = dense
    with start_server() as (second, _):
        request = LoadRequest(path, "f32", rpc=(endpoint, second), tensor_split=(3.0, 2.0))
        host, *devices = facts_of(request).tiers
        assert [device.layers for device in devices] == [(0, 1, 2), (3, LAYERS)]
        ids = [device.memory for device in devices]
        assert facts_of(request).device == ",".join(ids)
        only = facts_of(replace(request, device=ids[1], tensor_split=()))
        assert (only.device, only.gpu_layers_effective) == (ids[1], LAYERS + 1)
        assert not host.layers


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"split_mode": "diagonal"}, "none, layer, row, not 'diagonal'"),
        ({"split_mode": "row"}, "--rpc lends whole layers, and --split-mode row cuts them"),
        ({"n_cpu_moe": -1}, "not -1"),
        ({"n_cpu_moe": 2}, "no experts"),
        ({"tensor_split": (1.0, 1.0)}, "2 shares, and there are 1 devices"),
        ({"tensor_split": (0.0,)}, "one at least is more"),
        ({"tensor_split": (-1.0,)}, "0 or more"),
        ({"tensor_split": (float("nan"),)}, "0 or more"),
        ({"tensor_split": (1.0,), "split_mode": "none"}, "--split-mode none"),
        ({"device": "cpu"}, "--device auto"),
        ({"device": "RPC77"}, "no device 'RPC77': it has cpu, RPC"),
    ],
)
def test_what_cannot_be_honoured_is_refused(dense, request_for, changes, reason):
    with pytest.raises(BackendError, match=reason) as refused:
        llama_cpp.load(request_for(dense[0], **changes))
    assert "\n" not in str(refused.value)


def test_sizes_of_tensors_are_the_files(dense, llama_file):
    path, tensors = dense
    assert tensor_sizes.tensor_bytes(path) == tensors
    tied, _ = llama_file(tied=True)
    first = tied.with_name("m-00001-of-00002.gguf")
    second = tied.with_name("m-00002-of-00002.gguf")
    first.write_bytes(tied.read_bytes())
    second.write_bytes(path.read_bytes())
    assert tensor_sizes.tensor_bytes(second) == tensors


def test_a_file_that_is_none_has_no_tensors(tmp_path):
    (tmp_path / "no.gguf").write_bytes(b"nothing")
    assert tensor_sizes.tensor_bytes(tmp_path / "no.gguf") == {}


GPU = Accelerator("CUDA0", "A GPU")


def found(assigned, buffers, sizes=(10 * MIB, 10 * MIB, 30 * MIB), accelerators=(GPU,)):
    return tiers.tiers(assigned, sizes, buffers, accelerators)


def test_a_buffer_too_small_for_its_layers_holds_the_last_of_them():
    buffers = {"CPU": {"model": 20 * MIB}, "CUDA0": {"model": 30 * MIB, "kv": 5}}
    host, device = found(["CUDA0"] * 3, buffers)
    assert (host.layers, device.layers) == ((0, 1), (2,))
    assert (host.weight_bytes, device.weight_bytes, device.kv_bytes) == (20 * MIB, 30 * MIB, 5)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50), st.integers(0, 10**10))
def test_no_device_has_more_layers_than_bytes(sizes, model_bytes):
    buffers = {"CUDA0": {"model": model_bytes, "kv": 1}}
    host, device = found(["CUDA0"] * len(sizes), buffers, sizes)
    assert sorted(host.layers + device.layers) == list(range(len(sizes)))
    assert 0.9 * sum(sizes[layer] for layer in device.layers) <= model_bytes + 2 * RESOLUTION
    if model_bytes >= sum(sizes):
        assert not host.layers


def test_gpus_that_share_rows_are_one_memory():
    both = (Accelerator("CUDA0", "A GPU"), Accelerator("CUDA1", "A GPU"))
    buffers = {"CPU": {"model": 1}, "CUDA_Split": {"model": 49 * MIB}, "CUDA0": {"model": MIB}, "CUDA1": {"kv": 7}}
    host, device = found(["CUDA0", "CUDA0", "CUDA1"], buffers, accelerators=both)
    assert (device.memory, device.name, device.layers) == ("CUDA0,CUDA1", "A GPU", (0, 1, 2))
    assert (device.weight_bytes, device.kv_bytes, host.weight_bytes) == (50 * MIB, 7, 1)
    assert tiers.device_bytes(buffers, both) == 50 * MIB + 7


def test_layers_bring_their_tensors_but_not_experts_kept_back():
    tensors = {
        "token_embd.weight": 1000,
        "blk.0.attn_q.weight": 1,
        "blk.0.ffn_up_exps.weight": 2,
        "blk.1.attn_q.weight": 4,
        "blk.1.ffn_gate_exps.weight": 8,
        "blk.10.attn_q.weight": 64,  # of no layer of two
        "output_norm.weight": 16,
        "output.weight": 32,
    }
    assert tensor_sizes.layer_bytes(tensors, 2) == [3, 12, 48]
    assert tensor_sizes.layer_bytes(tensors, 2, n_cpu_moe=1) == [1, 12, 48]
    del tensors["output.weight"]
    assert tensor_sizes.layer_bytes(tensors, 2)[2] == 1016
    assert tensor_sizes.expert_layers(tensors) == {0, 1}


def test_the_answers_are_the_hosts(dense, request_for):
    path, _ = dense
    tokens = np.random.default_rng(0).integers(512, size=(1, 40)).astype(np.int32)
    logits = []
    for request in (request_for(path), LoadRequest(path, "f32", device="cpu")):
        session = llama_cpp.load(request)
        session.allocate(64, 1)
        logits.append(session.logits(tokens))
        session.close()
    np.testing.assert_allclose(logits[0], logits[1], rtol=0, atol=1e-3 * np.abs(logits[1]).max())
