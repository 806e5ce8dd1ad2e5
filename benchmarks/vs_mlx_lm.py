"""Our MLX backend beside `mlx_lm.benchmark`: same library build, directory, lengths and decode start.

    python benchmarks/vs_mlx_lm.py -m DIRECTORY -p 512 -n 128

Both run in turn (A B A B), each round in fresh processes, ours through the real worker. The directory needs a
tokenizer, as every artifact of tokenroof has; both take the weights as they are stored.

`mlx_lm.benchmark` divides n tokens by their n - 1 intervals, so its decode rate is multiplied by (n - 1) / n. A
ratio is ours over theirs, of the medians over all rounds; the aim is 1.0 or more.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from side_by_side import Rates, compare, run_ours

from backends.base import LoadRequest
from harness.workload import Case

_TRIAL = re.compile(r"Trial \d+: .*prompt_tps=([\d.]+), generation_tps=([\d.]+)")


def main() -> None:
    """Run the rounds and print one table."""
    arguments = _arguments()
    request = LoadRequest(arguments.model, weight_format=None)
    case = Case(n_depth=0, n_prompt=arguments.prompt, n_gen=arguments.gen)
    print(f"{arguments.model.name}: p{arguments.prompt} n{arguments.gen}")
    compare(
        "mlx_lm",
        arguments.rounds,
        lambda rates: _run_mlx_lm(arguments, rates),
        lambda rates: run_ours("mlx", request, case, arguments.repetitions, rates),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="tokenroof's MLX backend beside mlx_lm.benchmark")
    parser.add_argument("-m", "--model", type=Path, required=True, help="a Hugging Face directory with a tokenizer")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--gen", type=int, default=128)
    parser.add_argument("-r", "--repetitions", type=int, default=3, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _run_mlx_lm(arguments: argparse.Namespace, rates: Rates) -> None:
    command = [
        *(sys.executable, "-m", "mlx_lm.benchmark", "--model", str(arguments.model)),
        *("-p", str(arguments.prompt), "-g", str(arguments.gen), "-n", str(arguments.repetitions)),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    for prefill, decode in _TRIAL.findall(done.stdout):
        rates.prefill.append(float(prefill))
        rates.decode.append(float(decode) * (arguments.gen - 1) / arguments.gen)


if __name__ == "__main__":
    main()
