"""Our llama.cpp backend beside llama.cpp's own benchmark: same library build, file, threads and lengths.

    python benchmarks/vs_llama_bench.py --llama-bench PATH -m llama-3.2-1b -p 512 -n 64 -t 2

Both run in turn (A B A B), each round in fresh processes, ours through the real worker. Prefill is compared at
an empty cache (`llama-bench -p P -n 0`), decode from the same start (`llama-bench -p 0 -n N -d P`). A ratio is
ours over theirs, of the medians over all rounds; the aim is 0.98 or more for both.

llama-bench must be of the same llama.cpp as llama-cpp-python: README.md here tells how to build it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from side_by_side import Rates, compare, run_ours

from backends.base import LoadRequest
from harness.models.artifacts import prepare
from harness.models.source import resolve
from harness.workload import Case


def main() -> None:
    """Run the rounds and print one table."""
    arguments = _arguments()
    gguf = prepare(resolve(arguments.model), "gguf", None).path
    request = LoadRequest(gguf, weight_format=None, n_threads=arguments.threads)
    # Of n tokens the prefill gives the first, so n + 1 make n steps, as many as llama-bench times.
    case = Case(n_depth=0, n_prompt=arguments.prompt, n_gen=arguments.gen + 1)
    print(f"{gguf.name}: p{arguments.prompt} n{arguments.gen} t{arguments.threads}")
    compare(
        "llama-bench",
        arguments.rounds,
        lambda rates: _run_llama_bench(arguments, gguf, rates),
        lambda rates: run_ours("llama.cpp", request, case, arguments.repetitions, rates),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="tokenroof's llama.cpp backend beside llama-bench")
    parser.add_argument("--llama-bench", type=Path, required=True, help="the program, of the same llama.cpp")
    parser.add_argument("-m", "--model", required=True, help="a preset, a Hugging Face directory or a .gguf file")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--gen", type=int, default=64)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repetitions", type=int, default=3, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _run_llama_bench(arguments: argparse.Namespace, gguf: Path, rates: Rates) -> None:
    prefill = ("-p", str(arguments.prompt), "-n", "0")
    decode = ("-p", "0", "-n", str(arguments.gen), "-d", str(arguments.prompt))
    for flags, samples in ((prefill, rates.prefill), (decode, rates.decode)):
        command = [
            *(arguments.llama_bench, "-m", gguf, *flags),
            *("-t", str(arguments.threads), "-r", str(arguments.repetitions), "-o", "json"),
        ]
        environment = os.environ | _our_libraries()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, env=environment)
        samples.extend(json.loads(done.stdout)[0]["samples_ts"])


def _our_libraries() -> dict[str, str]:
    """Have llama-bench load llama-cpp-python's own libllama and ggml: two builds of one source differ in speed."""
    package = importlib.util.find_spec("llama_cpp")
    if package is None or package.origin is None:
        raise SystemExit("llama-cpp-python is not installed")
    variable = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    return {variable: str(Path(package.origin).parent / "lib")}


if __name__ == "__main__":
    main()
