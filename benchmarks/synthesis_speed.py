"""How fast synthetic weights are written, beside zeros written to the same disk, and in how much memory.

    python benchmarks/synthesis_speed.py [preset] [directory]

A disk's speed drifts and remembers what came before, so the two take turns, each first as often as the other. The
ratio is what counts: 1.0 is as fast as the disk.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from harness.models.presets import PRESETS
from harness.models.synthesis import ELEMENT_BYTES, synthesise
from harness.roofline.hf_config import from_hf_config
from harness.roofline.traffic import parameter_count

_ROUNDS = 6  # even, so that the order is fair
_PIECE = bytes(2 * 2**20)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _write_zeros(directory: Path, n_bytes: int) -> None:
    directory.mkdir()
    path = directory / "zeros"
    with path.open("wb", buffering=0) as file:
        for start in range(0, n_bytes, len(_PIECE)):
            file.write(_PIECE[: n_bytes - start])
    _sync(path)


def _write_model(directory: Path, preset: str, resident: list[int]) -> None:
    process = psutil.Process()
    synthesise(PRESETS[preset], directory, progress=lambda *_: resident.append(process.memory_info().rss))
    for path in directory.iterdir():
        _sync(path)


def main() -> None:
    """Print one line for each round and the medians."""
    preset = sys.argv[1] if len(sys.argv) > 1 else "llama-3.2-1b"
    n_bytes = parameter_count(from_hf_config(PRESETS[preset])) * ELEMENT_BYTES
    rates: dict[str, list[float]] = {"zeros": [], "model": []}
    resident: list[int] = []
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as scratch:
        target = Path(scratch) / "target"
        for i in range(_ROUNDS):
            for kind in ("zeros", "model") if i % 2 else ("model", "zeros"):
                start = time.perf_counter()
                if kind == "zeros":
                    _write_zeros(target, n_bytes)
                else:
                    _write_model(target, preset, resident)
                rates[kind].append(n_bytes / (time.perf_counter() - start) / 1e6)
                shutil.rmtree(target)
            print(f"zeros {rates['zeros'][-1]:5.0f} MB/s   model {rates['model'][-1]:5.0f} MB/s")
    zeros, model = (statistics.median(rates[kind]) for kind in ("zeros", "model"))
    print(f"{preset}, {n_bytes / 1e9:.2f} GB, synced: zeros {zeros:.0f} MB/s, model {model:.0f} MB/s, ", end="")
    print(f"ratio {model / zeros:.2f}, peak resident {max(resident) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
