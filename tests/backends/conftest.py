"""A second tier and models for it: a real RPC server in a process of its own, and GGUF files of a few megabytes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import gguf
import numpy as np
import pytest

# Wide enough for llama.cpp's log, which resolves 10 KiB, and no wider.
LAYERS, WIDTH, HEAD_DIM, FFN, VOCAB = 4, 256, 64, 256, 512


@contextmanager
def rpc_server():
    """One thread of this machine's CPU and its memory, lent at a free port: its endpoint and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    script = "import sys; from backends.llama_cpp import serve; serve.serve(sys.argv[1], 1, 'cpu')"
    command = [sys.executable, "-c", script, endpoint]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait_until_it_listens(process, endpoint)
            yield endpoint, process
        finally:
            process.kill()


def _wait_until_it_listens(process, endpoint):
    host, port = endpoint.split(":")
    while process.poll() is None:
        try:
            socket.create_connection((host, int(port))).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(process.stderr.read())


@pytest.fixture(scope="module")
def endpoint():
    with rpc_server() as (endpoint, _):
        yield endpoint


def _layer(layer, n_experts):
    experts = (n_experts,) if n_experts else ()
    suffix = "_exps" if n_experts else ""
    tensors = {
        "attn_norm": (WIDTH,),
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (HEAD_DIM, WIDTH),
        "attn_v": (HEAD_DIM, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_norm": (WIDTH,),
        f"ffn_gate{suffix}": (*experts, FFN, WIDTH),
        f"ffn_up{suffix}": (*experts, FFN, WIDTH),
        f"ffn_down{suffix}": (*experts, WIDTH, FFN),
    }
    if n_experts:
        tensors["ffn_gate_inp"] = (n_experts, WIDTH)
    return {f"blk.{layer}.{name}.weight": shape for name, shape in tensors.items()}


def write_llama(path, n_experts=0, tied=False):
    """A Llama of f32 in the order rows, columns; returns its tensors' bytes by name."""
    shapes = {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        shapes |= _layer(layer, n_experts)
    if not tied:
        shapes["output.weight"] = (VOCAB, WIDTH)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(WIDTH // HEAD_DIM)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    if n_experts:
        writer.add_expert_count(n_experts)
        writer.add_expert_used_count(2)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    writer.add_token_merges(["t 1"])
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        values = random.standard_normal(shape, np.float32)
        writer.add_tensor(name, 1 + 0.1 * values if len(shape) == 1 else 0.1 * values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {name: 4 * int(np.prod(shape)) for name, shape in shapes.items()}


@pytest.fixture(scope="session")
def llama_file(tmp_path_factory):
    """Writes one and tells its path and its tensors' bytes by name."""

    def write(**kind):
        path = tmp_path_factory.mktemp("llama") / "llama.gguf"
        return path, write_llama(path, **kind)

    return write


@pytest.fixture
def start_server():
    """`rpc_server`, for tests that end one."""
    return rpc_server
