"""Our llama.cpp backend beside llama.cpp's own benchmark: same library build, file, threads and lengths.

    python benchmarks/vs_llama_bench.py --llama-bench PATH -m llama-3.2-1b -p 512 -n 64 -t 2

Both run in turn (A B A B), each round in fresh processes, ours through the real worker. Prefill is compared at
an empty cache (`llama-bench -p P -n 0`), decode from the same start (`llama-bench -p 0 -n N -d P`). A ratio is
ours over theirs, of the medians over all rounds; the aim is 0.98 or more for both.

llama-bench is in llama.cpp's tree, which llama-cpp-python's source distribution carries:

    pip download --no-deps --no-binary :all: llama-cpp-python==VERSION
    tar xf llama_cpp_python-VERSION.tar.gz
    cmake -S llama_cpp_python-VERSION/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
    cmake --build build --target llama-bench -j

Give cmake the CMAKE_ARGS that llama-cpp-python was installed with; without any, both take the machine's own
instruction set and OpenMP.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

from backends.base import LoadRequest
from harness.models.source import prepare, resolve
from harness.process import Worker
from harness.workload import Case

_SILENCE_S = 600.0


@dataclass
class Rates:
    """Tokens a second, one entry a repetition."""

    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)


def main() -> None:
    """Run the rounds and print one table."""
    arguments = _arguments()
    gguf = prepare(resolve(arguments.model), "gguf", None).path
    theirs, ours = Rates(), Rates()
    for number in range(arguments.rounds):
        _run_llama_bench(arguments, gguf, theirs)
        _run_worker(arguments, gguf, ours)
        print(f"round {number + 1} of {arguments.rounds} done", flush=True)
    print(f"{gguf.name}: p{arguments.prompt} n{arguments.gen} t{arguments.threads}, median tok/s")
    print(f"{'':10}{'llama-bench':>14}{'tokenroof':>14}{'ratio':>8}")
    for phase in ("prefill", "decode"):
        them, us = statistics.median(getattr(theirs, phase)), statistics.median(getattr(ours, phase))
        print(f"{phase:10}{them:14.2f}{us:14.2f}{us / them:8.3f}")


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
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        samples.extend(json.loads(done.stdout)[0]["samples_ts"])


def _run_worker(arguments: argparse.Namespace, gguf: Path, rates: Rates) -> None:
    request = LoadRequest(gguf, weight_format=None, n_threads=arguments.threads)
    # Of n tokens the prefill gives the first, so n + 1 make n steps, as many as llama-bench times.
    case = Case(n_depth=0, n_prompt=arguments.prompt, n_gen=arguments.gen + 1)
    job = {
        "task": "run",
        "backend": "llama.cpp",
        "request": {**asdict(request), "artifact": str(gguf)},
        "seed": 1,
        "window": None,
        "cases": [{"case": asdict(case), "repetitions": arguments.repetitions}],
    }
    with Worker(job) as worker:
        for event in worker.events(silence_s=_SILENCE_S):
            if event["event"] in {"failed", "case_failed"}:
                raise SystemExit(event["error"])
            if event["event"] == "repetition":
                rates.prefill.append(arguments.prompt / event["ttft_s"])
                rates.decode.append(len(event["itl_s"]) / sum(event["itl_s"]))


if __name__ == "__main__":
    main()
