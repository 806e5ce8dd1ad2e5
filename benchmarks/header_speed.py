"""How long it takes to know every tensor of a 40 GB model, and how much of its files is read for it.

    python benchmarks/header_speed.py [directory]

The files are sparse: the header of a model of 100 layers with 128 256 tokens and twice as many merges in its
vocabulary, then 40 GB of holes. They take some megabytes of disk.
"""

from __future__ import annotations

import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
import psutil

from harness.models.gguf_file import read_gguf
from harness.models.safetensors_file import INDEX_NAME, tensor_table

if TYPE_CHECKING:
    from collections.abc import Callable

_ROUNDS = 9
_LAYERS, _WIDTH, _KV_WIDTH, _FEED_FORWARD, _VOCABULARY = 100, 4096, 1024, 14336, 128_256
_SHARDS = 9
_ALIGNMENT = 32


def _shapes() -> dict[str, tuple[int, ...]]:
    """`[out, in]` of every tensor, by Hugging Face's names."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (_VOCABULARY, _WIDTH)}
    for i in range(_LAYERS):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (_WIDTH,),
            f"{layer}.self_attn.q_proj.weight": (_WIDTH, _WIDTH),
            f"{layer}.self_attn.k_proj.weight": (_KV_WIDTH, _WIDTH),
            f"{layer}.self_attn.v_proj.weight": (_KV_WIDTH, _WIDTH),
            f"{layer}.self_attn.o_proj.weight": (_WIDTH, _WIDTH),
            f"{layer}.post_attention_layernorm.weight": (_WIDTH,),
            f"{layer}.mlp.gate_proj.weight": (_FEED_FORWARD, _WIDTH),
            f"{layer}.mlp.up_proj.weight": (_FEED_FORWARD, _WIDTH),
            f"{layer}.mlp.down_proj.weight": (_WIDTH, _FEED_FORWARD),
        }
    return shapes | {"model.norm.weight": (_WIDTH,), "lm_head.weight": (_VOCABULARY, _WIDTH)}


def _grow(path: Path, n_bytes: int) -> None:
    with path.open("r+b") as file:
        file.truncate(n_bytes)


def _write_gguf(path: Path) -> None:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, _LAYERS)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(_LAYERS)
    writer.add_token_list([f"token {i}" for i in range(_VOCABULARY)])
    writer.add_token_merges([f"tok en{i}" for i in range(2 * _VOCABULARY)])
    writer.add_token_types([1] * _VOCABULARY)
    data_bytes = 0
    for name, shape in _shapes().items():
        n_bytes = int(np.prod(shape)) * 2
        label = names.get_name(name, try_suffixes=(".weight",))
        assert label is not None
        writer.add_tensor_info(label, shape, np.dtype(np.float16), n_bytes, gguf.GGMLQuantizationType.F16)
        data_bytes += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    _grow(path, path.stat().st_size + _ALIGNMENT + data_bytes)


def _write_safetensors(directory: Path) -> None:
    directory.mkdir()
    shapes = list(_shapes().items())
    index: dict[str, str] = {}
    for shard in range(_SHARDS):
        path = directory / f"model-{shard + 1:05}-of-{_SHARDS:05}.safetensors"
        header, end = {}, 0
        for name, shape in shapes[shard::_SHARDS]:
            begin, end = end, end + int(np.prod(shape)) * 2
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
            index[name] = path.name
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text)
        _grow(path, 8 + len(text) + end)
    (directory / INDEX_NAME).write_text(json.dumps({"weight_map": index}), encoding="utf-8")


def _read_so_far() -> int:
    """Bytes that this process has read from files; 0 where the system does not tell."""
    process = psutil.Process()
    counters = process.io_counters() if hasattr(process, "io_counters") else None
    return getattr(counters, "read_chars", 0)


def _report(label: str, read: Callable[[], int], n_bytes: int) -> None:
    seconds = []
    before = _read_so_far()
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        n_tensors = read()
        seconds.append(time.perf_counter() - start)
    read_bytes = (_read_so_far() - before) / _ROUNDS
    print(f"{label}: {n_bytes / 1e9:.1f} GB, {n_tensors} tensors: {1e3 * seconds[0]:.0f} ms the first time, ", end="")
    print(f"{1e3 * statistics.median(seconds):.0f} ms the median, {read_bytes / 1e6:.1f} MB read")


def main() -> None:
    """Print one line a file format."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        file, directory = Path(scratch) / "model.gguf", Path(scratch) / "model"
        _write_gguf(file)
        _write_safetensors(directory)
        _report("GGUF", lambda: len(read_gguf(file).tensors), file.stat().st_size)
        sharded = sum(path.stat().st_size for path in directory.iterdir())
        _report("safetensors", lambda: len(tensor_table(directory)), sharded)


if __name__ == "__main__":
    main()
