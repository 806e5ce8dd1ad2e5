"""A second tier and models for it: a real RPC server in a process of its own, and GGUF files of a few megabytes."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass

import gguf
import numpy as np
import pytest

# Wide enough for llama.cpp's log, which resolves 10 KiB, and no wider.
FOR_TIERS = {"layers": 4, "width": 256, "heads": 4, "ffn": 256, "vocab": 512, "context": 8192}


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


@dataclass(frozen=True)
class TinyModel:
    """A model as a GGUF file in f32; "gemma3" has a Gemma's norms, any other architecture is a Llama. One KV head."""

    layers: int
    width: int
    heads: int
    ffn: int
    vocab: int
    context: int
    architecture: str = "llama"
    n_experts: int = 0
    tied: bool = False
    window: int = 0

    @property
    def head_dim(self):
        return self.width // self.heads

    def tensors(self):
        """Shapes by name, in the order rows, columns."""
        found = {"token_embd": (self.vocab, self.width)}
        for layer in range(self.layers):
            found |= {f"blk.{layer}.{name}": shape for name, shape in self._layer().items()}
        found["output_norm"] = (self.width,)
        if not self.tied:
            found["output"] = (self.vocab, self.width)
        return {f"{name}.weight": shape for name, shape in found.items()}

    def _layer(self):
        width, ffn, head_dim = self.width, self.ffn, self.head_dim
        experts, suffix = ((self.n_experts,), "_exps") if self.n_experts else ((), "")
        block = {
            "attn_norm": (width,),
            "attn_q": (width, width),
            "attn_k": (head_dim, width),
            "attn_v": (head_dim, width),
            "attn_output": (width, width),
            "ffn_norm": (width,),
            f"ffn_gate{suffix}": (*experts, ffn, width),
            f"ffn_up{suffix}": (*experts, ffn, width),
            f"ffn_down{suffix}": (*experts, width, ffn),
        }
        if self.n_experts:
            block["ffn_gate_inp"] = (self.n_experts, width)
        if self.architecture == "gemma3":
            block |= {"attn_q_norm": (head_dim,), "attn_k_norm": (head_dim,)}
            block |= {"post_attention_norm": (width,), "post_ffw_norm": (width,)}
        return block

    def write(self, path):
        writer = gguf.GGUFWriter(path, self.architecture)
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.width)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(self.ffn)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(1)
        writer.add_key_length(self.head_dim)
        writer.add_value_length(self.head_dim)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(self.vocab)
        if self.window:
            writer.add_sliding_window(self.window)
        if self.n_experts:
            writer.add_expert_count(self.n_experts)
            writer.add_expert_used_count(2)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([f"t{i}" for i in range(self.vocab)])
        writer.add_token_types([gguf.TokenType.NORMAL] * self.vocab)
        writer.add_token_merges(["t 1"])
        random = np.random.default_rng(0)
        for name, shape in self.tensors().items():
            values = random.standard_normal(shape, np.float32)
            writer.add_tensor(name, 1 + 0.1 * values if len(shape) == 1 else 0.1 * values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


@pytest.fixture(scope="session")
def tiny_model():
    """`TinyModel`."""
    return TinyModel


@pytest.fixture(scope="session")
def llama_file(tmp_path_factory):
    """Writes a Llama for two tiers, and tells its path and its tensors' bytes by name."""

    def write(**kind):
        path = tmp_path_factory.mktemp("llama") / "llama.gguf"
        model = TinyModel(**FOR_TIERS, **kind)
        model.write(path)
        return path, {name: 4 * math.prod(shape) for name, shape in model.tensors().items()}

    return write


@pytest.fixture
def start_server():
    """`rpc_server`, for tests that end one."""
    return rpc_server
